#include <iostream>

#include <troupe/callbacks/mlflow/mlflow.hpp>
#include <troupe/callbacks/tracking/tracker.hpp>

int main() {
  auto tracker = troupe::mlflow_tracker({.tracking_uri = "http://host"});
  std::cout << (tracker ? "tracked" : "not tracked") << '\n';
}
