#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "troupe/runtime/error.hpp"

namespace troupe {

struct segment_header;
struct rank_activity;
struct segment_rank;

/// The attempt of a run that a segment serves.
struct segment_owner {
  std::string run_id; ///< At most 128 bytes count.
  std::uint64_t attempt = 0;
};

/// Memory that the ranks of one attempt on one host share: a file without a
/// name (memfd), passed on as a descriptor. The driver's side creates it, the
/// `local` group of each rank attaches to it.
///
/// Pages cost nothing until a collective uses them. A segment serves one
/// attempt; the next attempt gets a new one.
class shared_segment {
public:
  /// Most ranks of one segment.
  static constexpr int max_ranks = 1024;

  /// Bytes of the area of one rank that tensors travel through, two halves of
  /// `chunk_bytes` each.
  static constexpr std::size_t chunk_bytes = std::size_t{2} << 20;

  /// Bytes of one of the two areas of a rank for tensors that travel together
  /// with their description.
  static constexpr std::size_t inline_bytes = std::size_t{16} << 10;

  /// A new segment for *ranks* ranks. Its descriptor is closed on exec.
  static expected<shared_segment> create(int ranks,
                                         const segment_owner& whose = {});

  /// Maps the segment behind *descriptor*, which stays the caller's and may be
  /// closed afterwards. `ec::protocol` if it is no segment of this version, or
  /// one of another attempt than *whose*.
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

private:
  shared_segment(void* base, std::size_t size, int descriptor, bool owned)
    : base_(base), size_(size), descriptor_(descriptor), owned_(owned) {}

  segment_header& header() const noexcept;

  void* base_ = nullptr;
  std::size_t size_ = 0;
  int descriptor_ = -1;
  bool owned_ = false; ///< Whether the descriptor is closed with this object.
};

} // namespace troupe
