#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::internal {

/// The last steps of a run, in order: callbacks have answered for all reports,
/// the end is stored, callbacks are called and answer, the driver quits.
///
/// A run that was preempted or stopped may be killed soon: its end is stored
/// while callbacks are still at work.
class run_ending {
public:
  enum class step : std::uint8_t { wait, store, quit };

  /// The run ends; *may_be_killed* says not to wait for callbacks before the
  /// end is stored. Returns false, and changes nothing, if it has begun to end.
  bool begin(bool may_be_killed) noexcept {
    if (phase_ != phase::not_begun)
      return false;
    phase_ = phase::begun;
    may_be_killed_ = may_be_killed;
    return true;
  }

  /// The end is stored, or could not be, and callbacks are asked for the last
  /// time.
  void stored() noexcept { phase_ = phase::stored; }

  /// What to do next while *under_way* calls of callbacks are unanswered.
  /// `store` comes once.
  step next(std::size_t under_way) noexcept {
    if (phase_ == phase::begun && (may_be_killed_ || under_way == 0)) {
      phase_ = phase::storing;
      return step::store;
    }
    return phase_ == phase::stored && under_way == 0 ? step::quit : step::wait;
  }

  bool has_begun() const noexcept { return phase_ != phase::not_begun; }

  /// Whether the end is stored, or on its way to storage.
  bool is_storing() const noexcept { return phase_ >= phase::storing; }

  /// Whether callbacks have been asked for the last time.
  bool is_stored() const noexcept { return phase_ == phase::stored; }

private:
  enum class phase : std::uint8_t { not_begun, begun, storing, stored };

  phase phase_ = phase::not_begun;
  bool may_be_killed_ = false;
};

} // namespace troupe::internal
