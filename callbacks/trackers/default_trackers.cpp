#include "troupe/callbacks/trackers/default_trackers.hpp"

#include <algorithm>
#include <utility>

#include "troupe/callbacks/csv/csv.hpp"
#include "troupe/callbacks/report_page/report_page_sink.hpp"
#include "troupe/callbacks/tracking/tracker.hpp"

namespace troupe::internal {

tracker_list default_trackers(const run_config& config) {
  tracker_list result;
  if (config.metrics_csv)
    result.push_back(csv_tracker());
  if (config.report_page)
    result.push_back(std::make_shared<const tracker>(
      std::make_shared<report_page_sink>(), own_files));
  return result;
}

tracker_list trackers_of(const run_config& config) {
  auto result = config.trackers;
  for (auto& x : default_trackers(config)) {
    auto name = x->target()->name();
    if (std::ranges::none_of(config.trackers, [&](auto& given) {
          return given->target()->name() == name;
        }))
      result.push_back(std::move(x));
  }
  return result;
}

} // namespace troupe::internal
