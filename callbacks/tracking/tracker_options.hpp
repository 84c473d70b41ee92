#pragma once

#include <chrono>
#include <cstddef>
#include <optional>

#include "troupe/callbacks/tracking/backoff.hpp"

namespace troupe {

/// How a run's records get to a tracker.
struct tracker_options {
  /// Records of this long are sent together. Nothing of the run waits for it.
  std::chrono::milliseconds interval{500};
  /// Most records that are sent together; the tracker may take fewer.
  std::size_t max_batch = 1000;
  /// How long the end of the run waits for the tracker. What is unsent then
  /// stays in the run's folder, for `troupe-sync` or the next driver.
  std::chrono::milliseconds finish_timeout{60'000};
  /// The same for a tracker that takes nothing all the while. Unset: no
  /// shorter.
  std::optional<std::chrono::milliseconds> failing_timeout = std::nullopt;
  /// Between attempts while the tracker fails.
  backoff::limits retry;
};

/// Of the files that every run has. People expect them to be whole when `fit()`
/// returns: a run that wrote much is waited for, a disk that takes nothing is
/// not.
inline constexpr tracker_options own_files{
  .finish_timeout = std::chrono::minutes{10},
  .failing_timeout = std::chrono::milliseconds{2000}};

} // namespace troupe
