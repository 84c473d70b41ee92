#pragma once

#include <cstddef>
#include <vector>

#include "troupe/trainers/torch/groups/reduction.hpp"
#include "troupe/trainers/torch/groups/segment_exchange.hpp"

namespace troupe::internal {

/// The collectives of ranks that share a segment.
///
/// Small tensors travel with the fingerprint, in one step. Large ones go
/// through the ranks' areas chunk by chunk: while chunk k+1 is copied in, chunk
/// k is reduced and chunk k-1 copied out.
class segment_collectives final : public memory_collectives {
public:
  explicit segment_collectives(segment_exchange& exchange)
    : exchange_(exchange) {}

  int rank() const noexcept override { return exchange_.rank(); }
  int ranks() const noexcept override { return exchange_.ranks(); }
  bool stores_partial_sums() const noexcept override { return false; }

  void barrier(const call& x) override;

  /// Each element is reduced by one rank in order of rank.
  void all_reduce(const call& x, std::byte* data, std::size_t count,
                  const reduction& how) override;

  void broadcast(const call& x, std::byte* data, std::size_t bytes) override;
  void all_gather(const call& x, const std::byte* in, std::size_t bytes,
                  const std::vector<std::byte*>& out) override;
  void scatter(const call& x, const std::vector<const std::byte*>& in,
               std::byte* out, std::size_t bytes) override;
  void reduce_scatter(const call& x, const std::vector<const std::byte*>& in,
                      std::byte* out, std::size_t count,
                      const reduction& how) override;

  void close() noexcept override { exchange_.close(); }
  void cancel() noexcept override { exchange_.cancel(); }
  void abort(const error& reason) noexcept override { exchange_.abort(reason); }

private:
  segment_exchange& exchange_;
};

} // namespace troupe::internal
