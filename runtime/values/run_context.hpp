#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/runtime/each_field.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/inspect_as.hpp"
#include "troupe/runtime/values/run_control.hpp"

namespace troupe {

/// What callbacks know about the run they are called for.
struct run_context {
  using clock = std::chrono::system_clock;

  std::string name;
  fs::path path;  ///< Absolute folder of the run.
  std::string id; ///< 32 hex digits; it stays the same over restarts.
  std::uint64_t attempt = 0;
  int world_size = 0; ///< As planned: attempts of an elastic run may differ.
  /// Of the current report, or of the last one that callbacks received. With
  /// `id` and `attempt` it identifies reports that come twice (`after_report`).
  std::uint64_t report_index = 0;
  std::string config;           ///< The run's configuration as text (JSON).
  clock::time_point start_time; ///< When this driver started.
  run_control control; ///< Ends the run. Of classes only: it does not travel.

  /// Makes the folder `callbacks/<name>` of the run, for files of a callback's
  /// own, and returns its path. What is neither a letter nor a digit becomes
  /// `_` in it. `troupe rm` removes it with the run.
  fs::path folder(std::string_view name) const;

  bool operator==(const run_context&) const = default;
};

template <class Inspector>
bool inspect(Inspector& f, run_context& x) {
  using std::chrono::microseconds;
  auto get = [&x] {
    auto since_epoch = x.start_time.time_since_epoch();
    return std::int64_t{
      std::chrono::duration_cast<microseconds>(since_epoch).count()};
  };
  auto set = [&x](std::int64_t us) {
    x.start_time = run_context::clock::time_point{microseconds{us}};
    return true;
  };
  return f.object(x).fields(
    f.field("name", x.name), internal::path_field(f, "path", x.path),
    f.field("id", x.id), f.field("attempt", x.attempt),
    f.field("world_size", x.world_size),
    f.field("report_index", x.report_index), f.field("config", x.config),
    f.field("start_time", get, set));
}

/// What a rank knows about itself and its attempt from its first moment on.
struct rank_facts {
  std::string run_name;
  std::string run_path;        ///< Absolute folder of the run.
  std::uint64_t run_inode = 0; ///< Its inode: another one is not the run's.
  std::string run_id; ///< 32 hex digits; it stays the same over restarts.
  std::uint64_t attempt = 0;
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;       ///< Position among the ranks of this host.
  int local_world_size = 1; ///< Ranks on this host.
  int node_rank = 0;
  bool in_process = false; ///< The rank is a thread of the driver's process.
  std::vector<int> cores;  ///< Cores this rank is pinned to; empty: not pinned.
  std::vector<int> gpus;   ///< Indices of the GPUs that belong to this rank.
  std::uint64_t first_report = 0; ///< Index of this attempt's first report.
  /// Descriptor of the shared segment of the attempt's ranks on this host; -1:
  /// none. The rank's own: it does not travel.
  int segment = -1;
  /// Of a rank that is a thread: how many threads its operators get, at least
  /// 1. The rank's own: it does not travel. 0: a process, which has them in its
  /// environment.
  int threads = 0;
  /// This host's name, for messages, and its address for the other hosts of the
  /// run, a number: the one by which its agent and the driver reached each
  /// other. Empty in a run on one host.
  std::string host;
  std::string host_address;
  /// `scaling_config::lost_after`: how long another host may be silent before
  /// it is lost. 0 in a run on one host.
  std::int64_t lost_after_ms = 0;

  bool operator==(const rank_facts&) const = default;
};

TROUPE_INSPECT(rank_facts, run_name, run_path, run_inode, run_id, attempt, rank,
               world_size, local_rank, local_world_size, node_rank, in_process,
               cores, gpus, first_report, host, host_address, lost_after_ms)

/// Why a train loop is to leave, and until when it may report.
struct stop_info {
  enum class kind_type : std::uint8_t {
    stopped,   ///< The run was stopped: the next `report` throws.
    preempted, ///< The run gives way: reports and checkpoints are still taken.
    /// The run has trained enough (`run_config::stop`, `request_stop`): so too,
    /// without a deadline, and it ends as finished.
    finished,
    /// The run continues with other ranks, because a host leaves or one has
    /// joined: reports and checkpoints are still taken, and the next attempt
    /// resumes from the last one.
    continues,
  };

  kind_type kind = kind_type::stopped;
  std::string reason; ///< Human-readable, such as "SIGTERM".
  /// When ranks that are still in their loops are ended, by the clock of the
  /// rank's host: the same for all its ranks, and on other hosts than the
  /// driver's late by the time that the message took. It changes only if ranks
  /// get another deadline. Not for `finished`; far away if nothing ends them.
  std::chrono::system_clock::time_point deadline;

  bool operator==(const stop_info&) const = default;
};

template <class Inspector>
bool inspect(Inspector& f, stop_info::kind_type& x) {
  return internal::inspect_enum(f, x, stop_info::kind_type::continues);
}

} // namespace troupe
