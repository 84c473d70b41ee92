#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/trainers/torch/groups/reduction.hpp"

namespace troupe::internal {

enum class collective_kind : std::uint32_t {
  barrier,
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  gather,
  scatter,
  reduce_scatter,
};

/// Describes a rank's next collective. Each rank compares it with those of the
/// others, so that mismatched calls are an error on every rank.
struct collective_fingerprint {
  std::uint64_t sequence = 0; ///< Filled in by the exchange.
  collective_kind kind = collective_kind::barrier;
  std::uint32_t type = 0;     ///< c10::ScalarType of the elements.
  std::uint32_t op = 0;       ///< `reduction_op`, where there is one.
  std::int32_t root = -1;     ///< -1: none.
  std::uint64_t elements = 0; ///< Of one rank's (part of the) tensor.

  bool operator==(const collective_fingerprint&) const = default;
};

/// Human-readable: "all-reduce 12 of 100 elements of float".
std::string to_string(const collective_fingerprint& x);

/// The collectives of the ranks of a group, on plain memory. Every rank calls
/// the same one with equal fingerprints.
///
/// All throw `train_error`: ranks that are missing (`ec::timeout`), ranks that
/// do something else (`ec::invalid_argument`), ranks that left
/// (`ec::rank_failed`), the reason of an abort. After the first failure every
/// call fails with that error. Belongs to one thread, except `cancel` and
/// `abort`.
class memory_collectives {
public:
  virtual ~memory_collectives() = default;

  struct call {
    collective_fingerprint fingerprint;
    std::chrono::milliseconds timeout;
  };

  virtual int rank() const noexcept = 0;
  virtual int ranks() const noexcept = 0;

  /// Whether sums of some ranks are stored before those of all are known: they
  /// must fit into the type of the elements.
  virtual bool stores_partial_sums() const noexcept = 0;

  virtual void barrier(const call& x) = 0;

  /// Reduces *count* elements at *data* of all ranks, in place: on all ranks,
  /// or on `fingerprint.root` alone if that is not -1. All ranks get the same
  /// bits.
  virtual void all_reduce(const call& x, std::byte* data, std::size_t count,
                          const reduction& how) = 0;

  /// Copies *bytes* at *data* of `fingerprint.root` to the same place on all
  /// others.
  virtual void broadcast(const call& x, std::byte* data, std::size_t bytes) = 0;

  /// Copies *bytes* at *in* of rank r to `out[r]` of all ranks, or of
  /// `fingerprint.root` alone; the other ranks pass an empty *out*.
  virtual void all_gather(const call& x, const std::byte* in, std::size_t bytes,
                          const std::vector<std::byte*>& out) = 0;

  /// Copies *bytes* at `in[r]` of `fingerprint.root` to *out* of rank r; the
  /// other ranks pass an empty *in*.
  virtual void scatter(const call& x, const std::vector<const std::byte*>& in,
                       std::byte* out, std::size_t bytes) = 0;

  /// Reduces the *count* elements at `in[r]` of all ranks to *out* of rank r.
  virtual void reduce_scatter(const call& x,
                              const std::vector<const std::byte*>& in,
                              std::byte* out, std::size_t count,
                              const reduction& how) = 0;

  /// The collective is over for this rank, successful or not.
  virtual void close() noexcept = 0;

  /// Ends the wait of this rank alone, now and later. Call it repeatedly until
  /// the waiting thread has returned.
  virtual void cancel() noexcept = 0;

  /// Ends the waits of every rank with *reason*. Never blocks.
  virtual void abort(const error& reason) noexcept = 0;
};

} // namespace troupe::internal
