#include "troupe/callbacks/tracking/default_trackers.hpp"

#include "troupe/callbacks/tracking/make_sink.hpp"

namespace troupe {

std::vector<std::shared_ptr<const tracker>>
default_trackers(const run_config& config) {
  std::vector<std::shared_ptr<const tracker>> result;
  auto add = [&result](bool wanted, const char* name) {
    if (!wanted)
      return;
    if (auto made = make_sink(name, "{}"))
      result.push_back(
        std::make_shared<const tracker>(std::move(*made), own_files));
  };
  add(config.metrics_csv, "csv");
  add(config.report_page, "report_page");
  return result;
}

} // namespace troupe
