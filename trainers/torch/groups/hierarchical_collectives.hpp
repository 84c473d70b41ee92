#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "troupe/trainers/ring/ring_thread.hpp"
#include "troupe/trainers/torch/groups/memory_collectives.hpp"
#include "troupe/trainers/torch/groups/segment_chunks.hpp"
#include "troupe/trainers/torch/groups/segment_exchange.hpp"

namespace troupe::internal {

/// Describes a note of a ring for error messages.
std::string describe_note(const ring_note& x);

/// The collectives of ranks on several hosts. The ranks of a host share a
/// segment; the first of them, its leader, is the host's place in a ring.
///
/// A large all-reduce goes chunk by chunk: while a chunk is copied in, the one
/// before it is reduced inside the host, the two before that are on their way
/// around the ring, on a thread of its own, and the next is copied out. Sums
/// of floating-point numbers are rounded to their type once per host.
class hierarchical_collectives final : public memory_collectives {
public:
  /// This rank is on host *index* of *hosts*. *ring* is null unless it leads.
  hierarchical_collectives(segment_exchange& exchange,
                           std::vector<ring_host> hosts, std::size_t index,
                           std::unique_ptr<host_ring> ring);

  ~hierarchical_collectives() override;

  int rank() const noexcept override;
  int ranks() const noexcept override;
  bool stores_partial_sums() const noexcept override { return true; }

  void barrier(const call& x) override;
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
  void cancel() noexcept override;
  void abort(const error& reason) noexcept override;

private:
  bool leads() const noexcept { return ring_ != nullptr; }
  std::size_t host_of(int rank) const noexcept;

  /// Runs *f*, the collective; if it fails, this host leaves the ring.
  void guarded(const std::function<void()>& f);

  void open(const call& x, const void* payload = nullptr,
            std::size_t bytes = 0);

  /// Of the collective that was opened.
  host_ring::call ring_call() const;

  void run(host_ring::ticket last);
  void await(host_ring::ticket last);
  [[noreturn]] void fail(const error& reason);

  /// All ranks get *bytes* at *data* of rank *root*.
  void spread(int root, std::byte* data, std::size_t bytes);

  /// A tensor that is summed chunk by chunk.
  struct chunked_sum {
    segment_chunks parts;
    reduction how;
    /// Has the ring add a chunk of all hosts.
    std::function<host_ring::ticket(std::byte* chunk, std::size_t bytes)>
      submit;
    /// Takes what this rank needs of that of chunk *i*; empty: nothing.
    std::function<void(std::size_t i, const std::byte* sum)> take;
  };

  /// Sums *data* of all ranks; if this rank takes nothing, it stays as it is.
  void add_up(const call& x, std::byte* data, std::size_t bytes,
              const chunked_sum& sum);
  void reduce_small(std::size_t bytes, const chunked_sum& x);
  void reduce_alone(std::byte* data, std::size_t bytes, const chunked_sum& x);
  void reduce_chunks(const std::byte* data, const chunked_sum& x);

  /// Takes the sum of all ranks at *from*.
  void finish(std::byte* data, const std::byte* from, std::size_t count,
              const reduction& how) const;

  /// Of the ranks of each host, if each rank has *bytes* in *data*.
  std::vector<std::span<std::byte>> blocks_of(std::byte* data,
                                              std::size_t bytes) const;

  segment_exchange& exchange_;
  const std::vector<ring_host> hosts_;
  const std::size_t index_;
  std::unique_ptr<host_ring> ring_;
  std::unique_ptr<ring_thread> thread_; ///< Of a leader.
};

} // namespace troupe::internal
