#pragma once

#include <memory>

#include "troupe/callbacks/mlflow/mlflow_options.hpp"
#include "troupe/callbacks/tracking/tracker.hpp"
#include "troupe/callbacks/user_callback.hpp"

namespace troupe {

/// For `run_config::callbacks`: the run is seen in MLflow.
std::shared_ptr<user_callback> mlflow_tracker(mlflow_options options = {},
                                              tracker_options tracking = {});

} // namespace troupe
