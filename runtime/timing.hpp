#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <random>

namespace troupe::internal {

/// How long to wait before something that failed is tried again: `first`, twice
/// that after another failure in a row, and so on up to `longest`.
struct retry_delay {
  using duration = std::chrono::milliseconds;

  duration first;
  duration longest;

  /// The wait after *failures* in a row, at least one.
  constexpr duration after(std::int64_t failures) const noexcept {
    // More doublings would overflow.
    auto doublings = std::clamp<std::int64_t>(failures - 1, 0, 20);
    return std::min(first * (std::int64_t{1} << doublings), longest);
  }
};

/// A number of [0, 1), for the jitter of waits.
using random_function = std::function<double()>;

/// A generator with a seed of its own.
inline random_function make_random_function() {
  return [engine = std::minstd_rand{std::random_device{}()}]() mutable {
    return std::uniform_real_distribution<double>{}(engine);
  };
}

/// *delay* without up to a half of it, by *random*, a number of [0, 1): those
/// that failed for one reason do not all try again at once.
inline retry_delay::duration with_jitter(retry_delay::duration delay,
                                         double random) {
  return delay
         - std::chrono::duration_cast<retry_delay::duration>(delay
                                                             * (random / 2));
}

/// Longer limits that a user may set count as this one: clocks would overflow.
inline constexpr std::chrono::milliseconds longest_limit =
  std::chrono::hours{24 * 365 * 10};

/// What comes this much late was delayed by the process: a signal had stopped
/// it, or the machine slept. A busy host delays less.
inline constexpr std::chrono::milliseconds standstill_margin{1000};

/// Returns whether the process stood still: what was due *expected* after the
/// last time came after *passed*.
template <class Passed, class Expected>
constexpr bool stood_still(Passed passed, Expected expected) noexcept {
  return passed > expected + standstill_margin;
}

} // namespace troupe::internal
