#include "troupe/runtime/config/stop_config.hpp"

#include <cmath>

#include "troupe/runtime/text.hpp"

namespace troupe::internal {

expected<void> validate(const stop_config& x) {
  auto refuse = [](std::string what) {
    return failure(ec::invalid_config, "run.stop." + std::move(what));
  };
  for (auto& limit : x.metrics) {
    if (limit.metric.empty())
      return refuse("metrics has a threshold without the name of a metric");
    if (limit.at_least.has_value() == limit.at_most.has_value())
      return refuse("metrics has a threshold for '" + limit.metric
                    + "' that sets "
                    + (limit.at_least ? "both at_least and at_most"
                                      : "neither at_least nor at_most"));
    if (std::isnan(limit.at_least ? *limit.at_least : *limit.at_most))
      return refuse("metrics has NaN as threshold for '" + limit.metric + "'");
  }
  if (x.reports && *x.reports < 1)
    return refuse("reports must be >= 1 or unset, got 0");
  if (x.time && x.time->count() <= 0)
    return refuse("time must be > 0 or unset, got " + duration_text(*x.time));
  return {};
}

} // namespace troupe::internal
