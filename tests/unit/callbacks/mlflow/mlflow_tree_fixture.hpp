#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.hpp"
#include "troupe/callbacks/mlflow/mlflow_tree.hpp"

namespace troupe::internal::test {

/// A tracking folder with one run.
class mlflow_tree_test : public testing::Test {
protected:
  mlflow_run wanted() {
    return {.experiment = "e",
            .name = "r",
            .uid = std::string(32, 'a'),
            .start_ms = 1000,
            .tags = {{"t", "v"}}};
  }

  fs::path run_folder() {
    for (const auto& x : fs::directory_iterator{folder.path()})
      if (fs::exists(x.path() / wanted().uid))
        return x.path() / wanted().uid;
    return {};
  }

  std::string lines(const std::string& key) {
    return bytes_of(run_folder() / "metrics" / key);
  }

  static sink_result log(mlflow_tree& x, std::vector<mlflow_metric> metrics) {
    return x.log_metrics(metrics);
  }

  temporary_folder folder;
};

} // namespace troupe::internal::test
