#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "troupe/callbacks/tracking/row_values.hpp"
#include "troupe/callbacks/tracking/tracker.hpp"

namespace troupe {

/// Where Prometheus finds a run, and which metrics.
struct prometheus_options {
  /// An IPv4 address of this host. The page has no password: by default only
  /// this host can read it.
  std::string address = "127.0.0.1";
  std::uint16_t port = 0; ///< 0: any free port, which a note names.
  /// Most names in `troupe_metric`: each is a series that a server keeps for
  /// weeks.
  std::size_t max_metrics = 200;
  /// How long the gauges of a finished run stay on the page.
  std::chrono::seconds grace{300};
  rank_values ranks = rank_values::mean;

  /// Lists what is saved for `troupe sync`.
  template <class Visitor>
  void visit(Visitor& option) {
    option("address", address);
    option("port", port);
    option.harmless("max_metrics", max_metrics);
    option.harmless("grace_s", grace);
    option.harmless("ranks", ranks);
  }
};

/// Serves the run's metrics to Prometheus, for `run_config::trackers`. If its
/// port is taken, the end of the run waits 2 s for it, unless *tracking* has a
/// `failing_timeout`.
std::shared_ptr<tracker> prometheus_tracker(prometheus_options options = {},
                                            tracker_options tracking = {});

} // namespace troupe
