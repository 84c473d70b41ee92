#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

namespace troupe::internal {

/// How many messages may be on their way to the loop of a rank: those that its
/// mailbox holds, and those that are not there yet. The sending side.
class mailbox_window {
public:
  explicit mailbox_window(std::uint64_t capacity) noexcept
    : capacity_(std::max<std::uint64_t>(capacity, 1)) {}

  std::uint64_t capacity() const noexcept { return capacity_; }

  /// Takes a place for a message. False: there is none.
  bool take_place() noexcept {
    if (used_ >= capacity_)
      return false;
    ++used_;
    return true;
  }

  /// The loop has taken *messages*.
  void give_back(std::uint64_t messages) noexcept {
    used_ -= std::min(used_, messages);
  }

  /// Whether no message is on its way.
  bool is_empty() const noexcept { return used_ == 0; }

  /// A message whose sender wants no answer found no place, or was refused.
  void drop() noexcept { ++dropped_; }

  /// How many were dropped so far, if that has changed since the last call.
  std::optional<std::uint64_t> news_of_drops() noexcept {
    if (std::exchange(reported_, dropped_) == dropped_)
      return std::nullopt;
    return dropped_;
  }

private:
  std::uint64_t capacity_;
  std::uint64_t used_ = 0;
  std::uint64_t dropped_ = 0;
  std::uint64_t reported_ = 0; // of those dropped
};

/// When the receiving side gives places back: a quarter at once, so that small
/// messages do not cost one each, and all once nothing waits.
class mailbox_returns {
public:
  explicit mailbox_returns(std::uint64_t capacity) noexcept
    : batch_(std::max<std::uint64_t>(capacity / 4, 1)) {}

  /// The loop has taken a message; *is_empty*: it was the last one. How many
  /// places to give back now.
  std::uint64_t take(bool is_empty) noexcept {
    ++taken_;
    return is_empty || taken_ >= batch_ ? std::exchange(taken_, 0) : 0;
  }

private:
  std::uint64_t batch_;
  std::uint64_t taken_ = 0;
};

} // namespace troupe::internal
