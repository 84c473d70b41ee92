#pragma once

#include "troupe/callbacks/mlflow/mlflow_options.hpp"
#include "troupe/callbacks/mlflow/mlflow_store.hpp"
#include "troupe/callbacks/tracking/tracked_run.hpp"

namespace troupe {

/// What MLflow is told to begin *run* with: *options* win, then what the train
/// loop said, then MLflow's variables.
mlflow_run describe_mlflow_run(const mlflow_options& options,
                               const tracked_run& run);

} // namespace troupe
