#pragma once

#include <chrono>

namespace troupe::internal::test {

/// When tests of decisions begin; they advance the time by hand.
inline constexpr std::chrono::steady_clock::time_point t0{
  std::chrono::seconds{1000}};

} // namespace troupe::internal::test
