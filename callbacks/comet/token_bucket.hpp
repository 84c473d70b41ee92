#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

namespace troupe {

/// Keeps to a limit of so many calls a minute. The bucket holds a quarter of a
/// minute's calls, so that a burst after a pause stays within the limit, too.
class token_bucket {
public:
  using clock = std::chrono::steady_clock;

  explicit token_bucket(double per_minute)
    : rate_(per_minute / 60), size_(per_minute / 4), tokens_(size_) {}

  /// Takes one token; false if there is none.
  bool take(clock::time_point now) {
    if (available(now) < 1)
      return false;
    --tokens_;
    return true;
  }

  /// Calls that may be made at once.
  double available(clock::time_point now) {
    if (last_ && now > *last_)
      tokens_ = std::min(
        size_,
        tokens_ + rate_ * std::chrono::duration<double>(now - *last_).count());
    last_ = now;
    return tokens_;
  }

  /// Until *count* calls may be made at once, in whole seconds, at least one.
  std::chrono::seconds until(double count) const {
    auto missing = std::min(count, size_) - tokens_;
    return std::chrono::ceil<std::chrono::seconds>(
      std::chrono::duration<double>(std::max(missing / rate_, 1.0)));
  }

private:
  double rate_;
  double size_;
  double tokens_;
  std::optional<clock::time_point> last_;
};

} // namespace troupe
