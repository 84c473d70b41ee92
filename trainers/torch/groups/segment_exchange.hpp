#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "troupe/runtime/process/shared_segment.hpp"

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

/// For people: "all-reduce 12 of 100 elements of float".
std::string to_string(const collective_fingerprint& x);

/// One rank's part in the collectives over a shared segment, in step with the
/// others.
///
/// A step: `meet` (all have finished the last step), touch shared memory,
/// `advance`. What a rank wrote in one step others may read in the next. After
/// the first failure the rank has left, and every call fails with that error.
/// Belongs to one thread, except `cancel`, `abort` and `failed`.
class segment_exchange {
public:
  /// *rank* of the segment's ranks.
  segment_exchange(shared_segment segment, int rank);

  /// Leaves: ranks that still wait for this one end.
  ~segment_exchange();

  int rank() const noexcept { return rank_; }
  int ranks() const noexcept { return segment_.ranks(); }

  /// Begins a collective: shows *fingerprint* and *bytes* of *payload* (at most
  /// `inline_bytes`) to the others and waits for theirs, at most *timeout* for
  /// this and all further steps of the collective.
  ///
  /// Throws `train_error`: ranks that are missing (`ec::timeout`), ranks that
  /// do something else (`ec::invalid_argument`), ranks that left
  /// (`ec::rank_failed`), the reason of an abort.
  void open(collective_fingerprint fingerprint,
            std::chrono::milliseconds timeout, const void* payload = nullptr,
            std::size_t bytes = 0);

  /// Waits until every rank has finished the last step; throws like `open`.
  void meet();

  /// Announces that this rank has finished the step.
  void advance() noexcept;

  /// The collective is over for this rank, successful or not.
  void close() noexcept;

  /// What *rank* gave to `open` for this collective.
  const std::byte* payload(int rank) const noexcept;

  /// The area of *rank* for step *step* of this collective.
  std::byte* chunk(int rank, std::uint64_t step) const noexcept {
    return segment_.chunk_area(rank, step);
  }

  std::uint64_t sequence() const noexcept { return fingerprint_.sequence; }

  /// Ends the wait of this rank alone, now and later. Call it repeatedly until
  /// the waiting thread has returned.
  void cancel() noexcept;

  /// Ends the waits of every rank with *reason*.
  void abort(const error& reason) noexcept { segment_.abort(reason); }

private:
  void wait_for(int peer);
  void compare_fingerprints();
  [[noreturn]] void fail(error reason);
  error failure_of(int peer, bool timed_out) const;

  shared_segment segment_;
  int rank_;
  int spins_;
  std::uint32_t step_ = 0;
  collective_fingerprint fingerprint_;
  std::chrono::milliseconds timeout_{};
  std::chrono::steady_clock::time_point deadline_;
  std::atomic<bool> cancelled_{false};
  std::optional<error> failure_;
};

} // namespace troupe::internal
