#pragma once

#include <array>
#include <chrono>
#include <cstdint>

namespace troupe {

/// Events per second over the last few seconds. The caller owns the clock.
class rate_meter {
public:
  using time_point = std::chrono::steady_clock::time_point;

  /// Time that the rate looks back.
  static constexpr auto window = std::chrono::seconds{5};

  explicit rate_meter(time_point start) : start_(start) {}

  /// *count* events happened at *now*. Time never goes back.
  void add(time_point now, std::uint64_t count = 1);

  /// Events per second over the window, or since the start if that is less.
  double rate(time_point now) const;

private:
  static constexpr auto slot_length = std::chrono::milliseconds{250};
  static constexpr auto slots = std::size_t{window / slot_length};

  std::int64_t slot_of(time_point t) const {
    return (t - start_) / slot_length;
  }

  time_point start_;
  std::int64_t last_slot_ = 0;
  std::array<std::uint64_t, slots> counts_{};
};

} // namespace troupe
