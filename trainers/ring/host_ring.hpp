#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "troupe/actors/transport/byte_link.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal {

/// One host of a ring.
struct ring_host {
  std::string name; ///< For messages.
  int first_rank = 0;
  int ranks = 1;
};

/// Human-readable: "host b (ranks 4-7)".
std::string to_string(const ring_host& x);

/// What a leader shows its neighbor ahead of the data of a collective. Equal on
/// all hosts, or their ranks do not call the same collective.
using ring_note = std::array<std::byte, 64>;

/// One host's place in a ring of hosts: sends to the next one, receives from
/// the previous one.
///
/// All hosts submit the same jobs in the same order; `run` does the work, in
/// the thread that calls it. Jobs that are there form one stream: the data of
/// the next one follows without a pause. What arrives is passed on as it
/// arrives. Neither direction ever waits for the other, so full buffers cannot
/// lock the ring.
///
/// Sums are computed along the ring, each element on a single path, so that all
/// hosts get the same bits. After the first failure every call fails.
class host_ring {
public:
  using clock = std::chrono::steady_clock;

  /// How *bytes* at *from*, whole elements, are added to those at *to*.
  using combine_function = std::function<void(
    std::byte* to, const std::byte* from, std::size_t bytes)>;

  /// Describes a note for error messages.
  using describe_function = std::function<std::string(const ring_note&)>;

  /// The collective that a job is a part of.
  struct call {
    ring_note note{};
    clock::time_point deadline = clock::time_point::max();
    std::chrono::milliseconds timeout{}; ///< As configured, for messages.
  };

  /// This host is number *index* of *hosts*; *next* and *previous* lead to its
  /// neighbors, and are null in a ring of one.
  host_ring(std::vector<ring_host> hosts, std::size_t index,
            std::unique_ptr<byte_link> next,
            std::unique_ptr<byte_link> previous, describe_function describe);

  /// Leaves.
  ~host_ring();

  host_ring(const host_ring&) = delete;
  host_ring& operator=(const host_ring&) = delete;

  const std::vector<ring_host>& hosts() const noexcept { return hosts_; }
  std::size_t index() const noexcept { return index_; }

  /// The number of a job, from 1. Its memory must stay until `run` has
  /// finished it or failed.
  using ticket = std::uint64_t;

  /// Sums *data*, elements of *width* bytes, over all hosts, in place.
  ticket all_reduce(const call& x, std::span<std::byte> data, std::size_t width,
                    combine_function combine);

  /// Sums *data* as `all_reduce` to host *root* alone; on the others it then
  /// holds a part of the sum.
  ticket reduce(const call& x, std::span<std::byte> data, std::size_t width,
                combine_function combine, std::size_t root);

  /// Sums block h, one per host, to host h, from the host after it on; the
  /// other blocks then hold parts of their sums.
  ticket reduce_scatter(const call& x,
                        const std::vector<std::span<std::byte>>& blocks,
                        std::size_t width, combine_function combine);

  /// Copies *data* of host *root* to the others.
  ticket broadcast(const call& x, std::span<std::byte> data, std::size_t root);

  /// Copies block h of host h to the others; one block per host.
  ticket all_gather(const call& x,
                    const std::vector<std::span<std::byte>>& blocks);

  /// Copies block h of host *root* to host h. The hosts between the two get it,
  /// too, to pass it on.
  ticket scatter(const call& x, const std::vector<std::span<std::byte>>& blocks,
                 std::size_t root);

  /// Copies block h of host h to host *root*, and to the hosts between the two.
  ticket gather(const call& x, const std::vector<std::span<std::byte>>& blocks,
                std::size_t root);

  /// Returns once job *last* and all before it are done; at most one thread
  /// at a time. Fails with `ec::timeout` at a job's deadline, `ec::rank_failed`
  /// if a neighbor has left, `ec::invalid_argument` if it does something else,
  /// or with the reason of an abort.
  expected<void> run(ticket last);

  /// What a waiting `run` asks a few times a second: an error ends the ring.
  /// Before the first `run`.
  void watch(std::function<error()> x) { watch_ = std::move(x); }

  /// Ends `run`, now and later, with *reason*; the first one stays. Neighbors
  /// see this host leave. Any thread may call it; does not wait.
  void abort(const error& reason) noexcept;

private:
  struct piece {
    std::byte* data = nullptr;
    std::size_t size = 0;
  };

  /// A part of a job to send. Its bytes are sent as soon as item *gate* of
  /// `incoming` has them; at once if *gate* is -1.
  struct outgoing {
    piece what;
    int gate = -1;
  };

  struct incoming {
    piece what;
    bool reduced = false;
    std::size_t done = 0; ///< Bytes at their place.
  };

  /// Begins each job on the wire.
  struct header {
    std::uint64_t magic = 0;
    std::uint64_t ticket = 0;
    std::uint64_t bytes = 0;
    std::uint64_t kind = 0;
    ring_note note{};

    bool operator==(const header&) const = default;
  };
  static_assert(sizeof(header) == 96); // as docs/collectives.md says

  struct job {
    call of;
    header mine;
    header theirs;
    std::vector<outgoing> out;
    std::vector<incoming> in;
    std::size_t out_at = 0;   ///< The item that is being sent.
    std::size_t out_done = 0; ///< Bytes of it.
    std::size_t in_at = 0;
    std::size_t width = 1;
    combine_function combine;
  };

  enum class progress {
    moved,
    blocked, ///< By the socket.
    idle,    ///< There is nothing to do.
  };

  static job new_job(const call& x, std::uint64_t kind, std::size_t bytes);
  /// How many hosts after *root* this one is.
  std::size_t distance_from(std::size_t root) const noexcept {
    return (index_ + hosts_.size() - root) % hosts_.size();
  }
  ticket submit(job x);
  void drop_finished();
  job* job_number(ticket x);
  expected<progress> send_some();
  expected<progress> receive_some();
  expected<progress> receive_reduced(job& x, incoming& item);
  expected<void> check_header(const job& x) const;
  expected<void> wait_for_events(bool sends, const job& oldest);
  expected<void> work_until(ticket last);
  error late(const job& x) const;
  error stop_reason() const;
  void close() noexcept;
  const ring_host& next_host() const;
  const ring_host& previous_host() const;

  const std::vector<ring_host> hosts_;
  const std::size_t index_;
  std::unique_ptr<byte_link> next_;
  std::unique_ptr<byte_link> previous_;
  const describe_function describe_;
  std::function<error()> watch_;
  wake_event wake_; ///< Something was submitted or aborted.

  mutable std::mutex mutex_; ///< Of what follows.
  std::deque<job> jobs_;
  ticket first_ = 1; ///< Of `jobs_`.
  error stopped_;

  // Used by the thread in `run` only.
  ticket sending_ = 1;
  ticket receiving_ = 1;
  error failure_;                 ///< Of `run`.
  std::vector<std::byte> bounce_; ///< What arrives to be added.
  std::size_t held_ = 0;          ///< Bytes of an element that is not whole.
};

} // namespace troupe::internal
