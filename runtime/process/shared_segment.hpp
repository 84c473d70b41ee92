#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/process/rank_activity.hpp"

namespace troupe::internal {

/// Sleeps while *word* is *value*, at most until *deadline*. May wake
/// spuriously. The word may be in memory that several processes share.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value,
                std::chrono::steady_clock::time_point deadline) noexcept;

/// Wakes all that sleep on *word*, in every process.
void futex_wake_all(std::atomic<std::uint32_t>& word) noexcept;

/// How a wait for a rank ended.
enum class segment_wait : std::uint8_t {
  reached,
  left, ///< The rank left, the segment was aborted, or the waiter cancelled.
  timed_out,
};

/// What one rank publishes in a `shared_segment`. Zeroed memory is a rank that
/// has not begun.
///
/// A rank writes its own `note`, then `advance`s; another rank `wait_for`s that
/// step and may then read the note. Steps are counted modulo 2^31.
struct segment_rank {
  /// Announces that this rank has finished its next step.
  void advance() noexcept;

  /// Waits until this rank has finished *step* steps, spinning *spins* times
  /// before it sleeps. After setting *cancelled*, wake `progress` repeatedly
  /// until the waiter has returned. If this process stood still beyond
  /// *deadline*, it waits a little longer: its peers may have, too.
  segment_wait wait_for(std::uint32_t step, int spins,
                        std::chrono::steady_clock::time_point deadline,
                        const std::atomic<bool>& cancelled) noexcept;

  /// Whether this rank has finished *step* steps.
  bool reached(std::uint32_t step) const noexcept;

  /// Announces that this rank takes no further part, and why; the first reason
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

  /// The rank's current and last collective.
  alignas(64) std::array<std::array<std::byte, 64>, 2> note;

  /// Where it waits, for the agent of its host to read.
  alignas(64) rank_activity activity;

  /// 0: here, 1: writes why it leaves, 2: left.
  alignas(64) std::atomic<std::uint32_t> departure;
  std::uint32_t departure_length;
  std::array<char, 376> departure_text;
};

struct segment_header;

/// The attempt of a run that a segment serves.
struct segment_owner {
  std::string run_id; ///< At most 128 bytes count.
  std::uint64_t attempt = 0;
};

/// Memory that the ranks of one attempt on one host share: an unnamed file
/// (memfd), passed as a descriptor. The driver's side creates it, the `local`
/// group of each rank attaches to it.
///
/// Pages cost nothing until a collective uses them. A segment serves one
/// attempt; the next attempt gets a new one.
class shared_segment {
public:
  /// Most ranks of one segment.
  static constexpr int max_ranks = 1024;

  /// Bytes of one rank's area for tensors, two halves of `chunk_bytes`
  /// each.
  static constexpr std::size_t chunk_bytes = std::size_t{2} << 20;

  /// Bytes of one of the two areas of a rank for tensors that travel together
  /// with their description.
  static constexpr std::size_t inline_bytes = std::size_t{16} << 10;

  /// Chunks of a tensor whose sums over all hosts are under way or read.
  static constexpr std::size_t results = 4;

  /// A new segment for *ranks* ranks. Its descriptor is closed on exec.
  static expected<shared_segment> create(int ranks,
                                         const segment_owner& whose = {});

  /// Maps the segment behind *descriptor*, which the caller keeps and may close
  /// afterwards. `ec::protocol` if it is not a segment of this version, or
  /// belongs to another attempt than *whose*.
  static expected<shared_segment> attach(int descriptor,
                                         const segment_owner& whose = {});

  shared_segment(shared_segment&& other) noexcept;
  shared_segment& operator=(shared_segment&& other) noexcept;
  ~shared_segment();

  /// The descriptor to hand to ranks: `rank_facts::segment`.
  int descriptor() const noexcept { return descriptor_; }

  int ranks() const noexcept;

  /// Ends every wait on this segment, now and later, in all processes. Never
  /// blocks; any thread of any process may call it, the first reason stays.
  void abort(const error& reason = {ec::stopped,
                                    "the attempt was ended"}) noexcept;

  bool aborted() const noexcept;

  /// Why, cut to a few hundred bytes; `ec::none` while not aborted.
  error abort_reason() const;

  /// Where *rank* waits.
  rank_activity& activity(int rank) const noexcept;

  /// The words and areas of *rank*, for the group over this segment.
  segment_rank& rank(int rank) const noexcept;
  std::byte* inline_area(int rank, std::uint64_t parity) const noexcept;
  std::byte* chunk_area(int rank, std::uint64_t parity) const noexcept;

  /// Area *number* modulo `results`, of `chunk_bytes`: for sums of all hosts.
  std::byte* result_area(std::uint64_t number) const noexcept;

private:
  shared_segment(void* base, std::size_t size, int descriptor, bool owned)
    : base_(base), size_(size), descriptor_(descriptor), owned_(owned) {}

  segment_header& header() const noexcept;

  void* base_ = nullptr;
  std::size_t size_ = 0;
  int descriptor_ = -1;
  bool owned_ = false; ///< Whether the descriptor is closed with this object.
};

} // namespace troupe::internal
