#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "troupe/runtime/process/shared_segment.hpp"
#include "troupe/trainers/torch/groups/memory_collectives.hpp"
#include "troupe/trainers/torch/groups/segment_chunks.hpp"

namespace troupe::internal {

/// One rank's part in the collectives over a shared segment, in step with the
/// others.
///
/// A step: `meet` (all have finished the last step), touch shared memory,
/// `advance`. What a rank wrote in one step others may read in the next. After
/// the first failure the rank has left, and every call fails with that error.
/// Belongs to one thread, except `cancel`, `abort` and `failed`.
class segment_exchange {
public:
  /// *rank* of the segment's ranks, the first of which is *first* of all ranks:
  /// errors add that.
  segment_exchange(shared_segment segment, int rank, int first = 0);

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

  /// Later waits of this collective may last the limit of `open` and *grace*
  /// from now on, so that another rank with the same limit, which has entered
  /// the collective before, fails first and names the cause.
  void grant(std::chrono::milliseconds grace) noexcept;

  /// Ends this rank's part because of *reason*, which came from elsewhere; all
  /// calls throw it from now on.
  [[noreturn]] void fail(error reason);

  /// Why the segment was aborted; no error if it was not.
  error abort_reason() const { return segment_.abort_reason(); }

  std::chrono::steady_clock::time_point deadline() const noexcept {
    return deadline_;
  }

  /// The limit that `open` got.
  std::chrono::milliseconds timeout() const noexcept { return timeout_; }

  /// Where the sum of all hosts of chunk *number* lies.
  std::byte* result(std::size_t number) const noexcept {
    return segment_.result_area(number);
  }

  rank_activity& activity() const noexcept { return segment_.activity(rank_); }

  const collective_fingerprint& fingerprint() const noexcept {
    return fingerprint_;
  }

  /// What *rank* gave to `open` for this collective.
  const std::byte* payload(int rank) const noexcept;

  /// The area of *rank* for step *step* of this collective.
  std::byte* chunk(int rank, std::uint64_t step) const noexcept {
    return segment_.chunk_area(rank, step);
  }

  /// Copies *data* of *root* to that of all others, chunk by chunk; a rank
  /// whose *data* is null takes nothing.
  void spread(int root, std::byte* data, std::size_t bytes);

  /// Copies *bytes* at `in[r]` of *root* to *out* of rank r, chunk by chunk.
  void deal(int root, const std::vector<const std::byte*>& in, std::byte* out,
            std::size_t bytes);

  /// Gets the bytes of *part* of the data of *rank*, which lie at *from*.
  using take_function =
    std::function<void(int rank, segment_piece part, const std::byte* from)>;

  /// Shows *in* to the others, chunk by chunk, and calls *take* with what each
  /// rank shows, this one too.
  void gather(const std::byte* in, std::size_t bytes,
              const take_function& take);

  /// Shows the others the slices of chunk *number* of *data* that they reduce.
  void show_slices(const segment_chunks& chunks, std::size_t number,
                   const std::byte* data) const;

  std::uint64_t sequence() const noexcept { return fingerprint_.sequence; }

  /// Ends the wait of this rank alone, now and later. Call it repeatedly until
  /// the waiting thread has returned.
  void cancel() noexcept;

  /// Ends the waits of every rank with *reason*.
  void abort(const error& reason) noexcept { segment_.abort(reason); }

private:
  void wait_for(int peer);
  void compare_fingerprints();
  error failure_of(int peer, bool timed_out) const;

  shared_segment segment_;
  int rank_;
  int first_;
  int spins_;
  std::uint32_t step_ = 0;
  collective_fingerprint fingerprint_;
  std::chrono::milliseconds timeout_{};
  std::chrono::steady_clock::time_point deadline_;
  std::atomic<bool> cancelled_{false};
  std::optional<error> failure_;
};

} // namespace troupe::internal
