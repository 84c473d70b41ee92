#include "troupe/callbacks/comet/comet_tracker.hpp"

#include "troupe/callbacks/comet/comet_sink.hpp"
#include "troupe/callbacks/tracking/tracker.hpp"

namespace troupe {

std::shared_ptr<user_callback> comet_tracker(comet_options options,
                                             tracker_options tracking) {
  return std::make_shared<tracker>(
    std::make_shared<comet_sink>(std::move(options)), tracking);
}

} // namespace troupe
