#include "troupe/callbacks/wandb/wandb_tracker.hpp"

#include "troupe/callbacks/tracking/tracker.hpp"
#include "troupe/callbacks/wandb/wandb_sink.hpp"

namespace troupe {

std::shared_ptr<user_callback> wandb_tracker(wandb_options options,
                                             tracker_options tracking) {
  return std::make_shared<tracker>(
    std::make_shared<wandb_sink>(std::move(options)), tracking);
}

} // namespace troupe
