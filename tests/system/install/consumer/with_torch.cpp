#include <iostream>

#include <troupe/trainers/torch/torch_config.hpp>

int main() {
  std::cout << "gradients over " << to_string(troupe::torch_config{}.backend)
            << '\n';
}
