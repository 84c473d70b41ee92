#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <random>

namespace troupe {

/// How long to wait before the next attempt: doubling with full jitter, so that
/// many runs do not ask a service that comes back all at once.
class backoff {
public:
  using milliseconds = std::chrono::milliseconds;

  struct limits {
    milliseconds first{1000};
    milliseconds longest{60'000};
    /// Most of what a service may ask for (`Retry-After`).
    milliseconds longest_asked{600'000};
  };

  explicit backoff(limits x, std::uint64_t seed = std::random_device{}())
    : limits_(x), random_(seed) {}

  /// Between half of the bound and the bound, which doubles with every call
  /// from *first* to *longest*; at least what was *asked* for.
  milliseconds next(std::optional<milliseconds> asked = std::nullopt);

  /// Something went well: the next wait is short again.
  void reset() noexcept { failures_ = 0; }

  int failures() const noexcept { return failures_; }

private:
  limits limits_;
  std::mt19937_64 random_;
  int failures_ = 0;
};

} // namespace troupe
