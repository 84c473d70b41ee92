#include "troupe/callbacks/prometheus/prometheus_tracker.hpp"

#include "troupe/callbacks/prometheus/prometheus_sink.hpp"
#include "troupe/callbacks/tracking/tracker.hpp"

namespace troupe {

std::shared_ptr<user_callback> prometheus_tracker(prometheus_options options,
                                                  tracker_options tracking) {
  return std::make_shared<tracker>(
    std::make_shared<prometheus_sink>(std::move(options)), tracking);
}

} // namespace troupe
