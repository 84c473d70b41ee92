#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::internal {

/// Which calls one actor that follows a run gets. The run waits for the answer
/// to the last one only: a follower that is slow misses reports, and nothing
/// else.
class follower_window {
public:
  enum class call : std::uint8_t {
    report,
    last, ///< The run is over.
    other,
  };

  /// Calls that it may not have answered before it gets no reports.
  static constexpr std::size_t max_unanswered = 64;

  bool takes(call x) const noexcept {
    return x != call::report || unanswered_ < max_unanswered;
  }

  void called(call x) noexcept {
    ++unanswered_;
    owes_last_ = owes_last_ || x == call::last;
  }

  /// It has answered, or is no longer waited for.
  void answered(call x) noexcept {
    --unanswered_;
    owes_last_ = owes_last_ && x != call::last;
  }

  /// Whether the end of the run waits for it.
  bool owes_last() const noexcept { return owes_last_; }

private:
  std::size_t unanswered_ = 0;
  bool owes_last_ = false;
};

} // namespace troupe::internal
