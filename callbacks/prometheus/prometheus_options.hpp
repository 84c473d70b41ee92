#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "troupe/callbacks/tracking/row_values.hpp"

namespace troupe {

/// Where Prometheus finds a run, and what.
struct prometheus_options {
  /// An IPv4 address of this host. The page has no password, so that others
  /// than this host see it only if asked for.
  std::string address = "127.0.0.1";
  std::uint16_t port = 0; ///< 0: any that is free; a note tells which.
  /// Most names in `troupe_metric`: each is a series that a server keeps for
  /// weeks.
  std::size_t max_metrics = 200;
  /// How long the gauges of a run that has ended stay on the page.
  std::chrono::seconds grace{300};
  rank_values ranks = rank_values::mean;
};

} // namespace troupe
