#pragma once

#include <troupe/trackers.hpp>
#include <troupe/train.hpp>

#include "tests/support/temporary_folder.hpp"

namespace troupe::internal::test {

/// The config of a run that writes MLflow's files into a tree, and no more to
/// the console.
struct mlflow_tree {
  explicit mlflow_tree(tracker_options patience = {}) {
    run.name = "run";
    run.storage_path = folder.path();
    run.quiet = true;
    run.trackers = {mlflow_tracker({.tracking_uri = path.string()}, patience)};
  }

  temporary_folder folder;
  fs::path path = folder.path() / "mlruns";
  run_config run;
};

} // namespace troupe::internal::test
