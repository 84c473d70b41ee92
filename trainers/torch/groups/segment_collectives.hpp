#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "troupe/trainers/torch/groups/reduction.hpp"
#include "troupe/trainers/torch/groups/segment_exchange.hpp"

namespace troupe::internal {

/// The collectives of ranks that share a segment, on plain memory. Every rank
/// calls the same one with equal fingerprints; all throw like
/// `segment_exchange::open`.
///
/// Small tensors travel with the fingerprint, in one step. Large ones go
/// through the ranks' areas chunk by chunk: while chunk k+1 is copied in, chunk
/// k is reduced and chunk k-1 copied out.
class segment_collectives {
public:
  explicit segment_collectives(segment_exchange& exchange)
    : exchange_(exchange) {}

  struct call {
    collective_fingerprint fingerprint;
    std::chrono::milliseconds timeout;
  };

  void barrier(const call& x);

  /// Reduces *count* elements at *data* of all ranks, in place: on all ranks,
  /// or on `fingerprint.root` alone if that is not -1. Each element is reduced
  /// by one rank in order of rank, so that all ranks get the same bits.
  void all_reduce(const call& x, std::byte* data, std::size_t count,
                  const reduction& how);

  /// Copies *bytes* at *data* of `fingerprint.root` to the same place on all
  /// others.
  void broadcast(const call& x, std::byte* data, std::size_t bytes);

  /// Copies *bytes* at *in* of rank r to `out[r]` of all ranks, or of
  /// `fingerprint.root` alone; the other ranks pass an empty *out*.
  void all_gather(const call& x, const std::byte* in, std::size_t bytes,
                  const std::vector<std::byte*>& out);

  /// Copies *bytes* at `in[r]` of `fingerprint.root` to *out* of rank r; the
  /// other ranks pass an empty *in*.
  void scatter(const call& x, const std::vector<const std::byte*>& in,
               std::byte* out, std::size_t bytes);

  /// Reduces the *count* elements at `in[r]` of all ranks to *out* of rank r.
  void reduce_scatter(const call& x, const std::vector<const std::byte*>& in,
                      std::byte* out, std::size_t count, const reduction& how);

private:
  segment_exchange& exchange_;
};

} // namespace troupe::internal
