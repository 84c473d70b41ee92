#include "troupe/callbacks/mlflow/mlflow_tracker.hpp"

#include "troupe/callbacks/mlflow/mlflow_sink.hpp"
#include "troupe/callbacks/tracking/tracker.hpp"

namespace troupe {

std::shared_ptr<user_callback> mlflow_tracker(mlflow_options options,
                                              tracker_options tracking) {
  return std::make_shared<tracker>(
    std::make_shared<mlflow_sink>(std::move(options)), tracking);
}

} // namespace troupe
