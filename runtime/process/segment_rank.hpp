#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "troupe/runtime/process/rank_activity.hpp"

namespace troupe {

/// How a wait for a rank ended.
enum class segment_wait : std::uint8_t {
  reached,
  left, ///< The rank left, the segment was aborted, or the waiter cancelled.
  timed_out,
};

/// What one rank shows the others of a `shared_segment`. Zeroed memory is a
/// rank that has not begun.
///
/// A rank writes its own `note`, then `advance`s; another rank `wait_for`s that
/// step and may then read the note. Steps are counted modulo 2^31.
struct segment_rank {
  /// Says that this rank has finished its next step.
  void advance() noexcept;

  /// Waits until this rank has finished *step* steps, spinning *spins* times
  /// before it sleeps. Who sets *cancelled* also wakes the sleepers of
  /// `progress`, again until the waiter is back.
  segment_wait wait_for(std::uint32_t step, int spins,
                        std::chrono::steady_clock::time_point deadline,
                        const std::atomic<bool>& cancelled) noexcept;

  /// Whether this rank has finished *step* steps.
  bool reached(std::uint32_t step) const noexcept;

  /// Says that this rank takes part in nothing more, and why; the first reason
  /// stays. Ends the waits for it.
  void leave(std::string_view why) noexcept;

  /// Why this rank left; empty while it has not.
  std::string_view left() const noexcept;

  /// Ends all waits for this rank, now and later.
  void release_waiters() noexcept;

  /// Bit 0: waits end. The other bits count steps, so that they wrap around
  /// without touching it.
  alignas(64) std::atomic<std::uint32_t> progress;
  std::atomic<std::uint32_t> sleepers;

  /// What the rank does in its current and its last collective.
  alignas(64) std::array<std::array<std::byte, 64>, 2> note;

  /// Where it waits, for the worker group to read.
  alignas(64) rank_activity activity;

  /// 0: here, 1: writes why it leaves, 2: left.
  alignas(64) std::atomic<std::uint32_t> departure;
  std::uint32_t departure_length;
  std::array<char, 376> departure_text;
};

} // namespace troupe
