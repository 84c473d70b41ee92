#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <utility>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

/// What an actor knows of any attempt.
struct numbered_attempt {
  std::uint64_t number = 0;
  error end_reason; ///< Set: its ranks are to end.
};

/// The attempt under way, of which there is one at most, and which messages
/// count for it.
///
/// Invariants (the tests cite them by name):
///   AS-1  Messages of any other attempt, earlier or later, are dropped.
///   AS-2  An attempt that ends takes no more calls of ranks, but learns what
///         becomes of them.
template <std::derived_from<numbered_attempt> State>
class attempt_slot {
public:
  /// Begins attempt *number* in place of any other; *parts* are its state's.
  template <class... Parts>
  State& begin(std::uint64_t number, Parts&&... parts) {
    auto& result = state_.emplace(std::forward<Parts>(parts)...);
    result.number = number;
    return result;
  }

  /// The attempt is over.
  void reset() { state_.reset(); }

  explicit operator bool() const noexcept { return state_.has_value(); }
  State& operator*() noexcept { return *state_; }
  const State& operator*() const noexcept { return *state_; }
  State* operator->() noexcept { return &*state_; }
  const State* operator->() const noexcept { return &*state_; }

  /// Whether attempt *number* is under way.
  bool is(std::uint64_t number) const noexcept {
    return state_ && state_->number == number;
  }

  /// For a message of attempt *number*: that attempt, or nullptr (AS-1).
  State* current(std::uint64_t number) noexcept {
    return is(number) ? &*state_ : nullptr;
  }

  /// For a call of a rank: the same, or why the attempt takes none (AS-2).
  expected<State*> open(std::uint64_t number) {
    auto found = current(number);
    if (found && !found->end_reason)
      return found;
    return tl::unexpected{found ? found->end_reason : too_late(number)};
  }

  /// The answer to a message of attempt *number*, which is not under way.
  static error too_late(std::uint64_t number) {
    return {ec::stopped, concat("attempt ", number, " is over")};
  }

private:
  std::optional<State> state_;
};

} // namespace troupe::internal
