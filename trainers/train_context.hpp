#pragma once

#include <any>
#include <atomic>
#include <chrono>
#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <cereal/archives/portable_binary.hpp>
#include <cereal/types/map.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>

#include "troupe/runtime/checkpoint/checkpoint.hpp"
#include "troupe/runtime/checkpoint/staged_checkpoint.hpp"
#include "troupe/runtime/config/rank_hooks.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/metrics/metrics.hpp"
#include "troupe/runtime/process/forked_process.hpp"
#include "troupe/runtime/report/report.hpp"
#include "troupe/runtime/values/journal_entry.hpp"
#include "troupe/runtime/values/run_context.hpp"
#include "troupe/trainers/train_error.hpp"
#include "troupe/trainers/train_state.hpp"

namespace troupe {

namespace internal {
class rank_access;
class rank_link;
} // namespace internal

/// Largest value of `broadcast_from_rank_zero` in bytes, serialized.
inline constexpr std::size_t max_broadcast_bytes = 1024 * 1024;

/// A rank's access to the run: its own identity, and all requests to the run.
/// Every call that fails throws `train_error`.
///
/// Belongs to the thread of the train loop: calls on other threads, in
/// processes that the loop forks, and after it has ended, throw. The context
/// itself stays until the run (in a rank process: the process) has ended.
class train_context {
public:
  train_context(rank_facts facts, std::shared_ptr<internal::rank_link> link,
                std::optional<troupe::checkpoint> resume);
  ~train_context();

  train_context(const train_context&) = delete;
  train_context& operator=(const train_context&) = delete;

  int rank() const noexcept { return facts_.rank; }
  int world_size() const noexcept { return facts_.world_size; }
  int local_rank() const noexcept { return facts_.local_rank; }
  int local_world_size() const noexcept { return facts_.local_world_size; }
  int node_rank() const noexcept { return facts_.node_rank; }
  /// The GPUs that belong to this rank, as CUDA numbers them in its process;
  /// `device(context)` is the first. Not its `local_rank()`: other runs of the
  /// program may have the first GPUs, and a rank may have several.
  const std::vector<int>& gpus() const noexcept { return facts_.gpus; }
  std::uint64_t attempt() const noexcept { return facts_.attempt; }
  const std::string& run_name() const noexcept { return facts_.run_name; }
  /// 32 hex digits that name the run; the same after every restart, of ranks
  /// and of the driver.
  const std::string& run_id() const noexcept { return facts_.run_id; }
  /// Folder of the run on its storage.
  fs::path run_path() const { return facts_.run_path; }

  /// The checkpoint to resume from; later the last one to which this rank added
  /// files: with `report(values, state)` rank 0 alone. A loop that reports, but
  /// never called this although there is one to resume from, causes a warning.
  const std::optional<troupe::checkpoint>& checkpoint() const noexcept {
    is_unread_ = false;
    return checkpoint_;
  }

  /// Gives the objects of *state* what the checkpoint to resume from holds, all
  /// of it or, if that throws, nothing. False: there is none, the loop trains
  /// from the beginning.
  bool resume(const train_state& state);

  /// Committed checkpoints that were not evicted, oldest first.
  std::vector<reported_checkpoint> all_reported_checkpoints();

  /// A folder on the run's storage for the checkpoint of a later report.
  staged_checkpoint new_checkpoint();

  /// Reports *values*; returns once every rank has sent its report of the same
  /// index and all of them are stored.
  void report(const metrics& values, const report_options& options = {});

  /// The same with this rank's files of a checkpoint.
  void report(const metrics& values, staged_checkpoint files,
              const report_options& options = {});

  /// The same with files or without, as a rank has them.
  template <std::same_as<std::optional<staged_checkpoint>> Files>
  void report(const metrics& values, Files files,
              const report_options& options = {}) {
    send(values, std::move(files), options);
  }

  /// The same with files that rank 0 alone writes: calls *write* there with a
  /// new checkpoint, and nowhere else. What it throws leaves `report`, and
  /// nothing is reported.
  template <class Write>
    requires std::invocable<Write&, staged_checkpoint&>
  void report(const metrics& values, Write&& write,
              const report_options& options = {}) {
    std::optional<staged_checkpoint> files;
    if (rank() == 0)
      write(files.emplace(new_checkpoint()));
    send(values, std::move(files), options);
  }

  /// The same with the objects of *state*, which rank 0 saves: they are equal
  /// on all ranks, and metrics among them were reset.
  void report(const metrics& values, const train_state& state,
              const report_options& options = {});

  /// The same with the files of a folder, copied or moved as *options* say.
  void report(const metrics& values, const troupe::checkpoint& files,
              const report_options& options = {});

  /// Waits until every rank is here.
  void barrier();

  /// Rank 0's *value* on every rank: any type that cereal serializes, at most
  /// `max_broadcast_bytes`. If rank 0 cannot send it, every rank throws.
  template <class T>
  T broadcast_from_rank_zero(const T& value) {
    expected<std::string> bytes;
    if (rank() == 0)
      bytes = serialized(value);
    std::istringstream in{broadcast(std::move(bytes))};
    T result{};
    cereal::PortableBinaryInputArchive{in}(result);
    return result;
  }

  /// Whether the loop is to leave. It turns true on all ranks at the same
  /// report if the run is preempted: leave by returning, after a last
  /// checkpoint. If the run was stopped, the next `report` or `barrier` throws
  /// `run_stopped`. If the run has trained enough, loops may report on once
  /// they have seen this; in others the next `report` ends the loop.
  bool stop_requested() const noexcept;

  /// Ends the whole run as finished with the next report of this rank, for
  /// *reason*, as `run_config::stop` does. A rank that no longer reports ends
  /// nothing. Later calls change nothing.
  void request_stop(std::string reason);

  /// Why and by when, if `stop_requested()`.
  std::optional<troupe::stop_info> stop_info() const;

private:
  friend class internal::rank_access;

  template <class T>
  static expected<std::string> serialized(const T& value) {
    try {
      std::ostringstream out;
      cereal::PortableBinaryOutputArchive{out}(value);
      return std::move(out).str();
    } catch (const std::exception& x) {
      return failure(ec::invalid_argument,
                     std::string{"the value cannot be serialized: "}
                       + x.what());
    }
  }

  void end();
  void log(loop_event x);
  std::shared_ptr<void> before_report(std::function<void()> f);

  /// The link for *call*, if this thread may make it now.
  internal::rank_link& link_for(const char* call);
  std::string broadcast(expected<std::string> bytes);
  void call_before_report();
  void leave_by_itself(const troupe::stop_info& stop);
  void warn_of_unread_checkpoint(internal::rank_link& link);
  void send(const metrics& values, std::optional<staged_checkpoint> files,
            const report_options& options);
  void call_hook(const metrics& values,
                 const std::optional<troupe::checkpoint>& mine);

  rank_facts facts_;
  std::shared_ptr<internal::rank_link> link_;
  std::optional<troupe::checkpoint> checkpoint_;
  /// Rank 0 has a checkpoint to resume from, and the loop does not know it.
  mutable std::atomic<bool> is_unread_;
  std::uint64_t next_report_ = 0;
  std::chrono::steady_clock::time_point step_begin_;
  decltype(rank_hooks::on_report) on_report_;
  std::vector<std::weak_ptr<std::function<void()>>> before_report_;
  bool in_hook_ = false;
  std::string stop_request_;
  mutable std::atomic<bool> knows_stop_ = false; // `stop_requested()` said so
  bool leaves_by_itself_ = false;
  error hook_failure_;
  std::any data_plane_;
  const internal::owner_process process_;
  const std::thread::id owner_;
  std::atomic<bool> ended_ = false;
};

namespace internal {

/// What Troupe's own code does with a context, and no loop does.
class rank_access {
public:
  using report_hook = decltype(rank_hooks::on_report);

  explicit rank_access(train_context& x) noexcept : x_(x) {}

  const rank_facts& facts() const noexcept { return x_.facts_; }

  /// The control plane.
  rank_link& link() const noexcept { return *x_.link_; }

  /// The same for *call*, which throws if this thread may not make it now.
  rank_link& link_for(const char* call) const { return x_.link_for(call); }

  /// A slot for the data plane (group, device) of the trainer that started the
  /// loop, until the loop has ended.
  std::any& data_plane() const noexcept { return x_.data_plane_; }

  /// Adds *x* to the run's journal, ahead of later reports of this rank, for
  /// trackers: see `tracking_handle`. The run's own kinds, such as `run_ended`,
  /// are refused.
  void log(loop_event x) const { x_.log(std::move(x)); }

  /// Calls *f* at the end of every report. Its exceptions leave `report` as a
  /// `train_error` that names the hook, and are kept in `hook_failure`.
  void on_report(report_hook f) const { x_.on_report_ = std::move(f); }

  /// Calls *f* at the start of `report` and `new_checkpoint` while the result
  /// exists, for a data plane that must refuse invalid results; its exceptions
  /// leave both.
  [[nodiscard]] std::shared_ptr<void>
  before_report(std::function<void()> f) const {
    return x_.before_report(std::move(f));
  }

  /// Whether `report` threw `run_stopped` because the run has trained enough,
  /// or continues in another attempt; not because a request was refused.
  bool leaves_by_itself() const noexcept { return x_.leaves_by_itself_; }

  /// Why the hook of reports failed; `ec::none` if it did not.
  const error& hook_failure() const noexcept { return x_.hook_failure_; }

  /// The loop has ended: releases the data plane and refuses all later calls.
  void end() const { x_.end(); }

private:
  train_context& x_;
};

} // namespace internal

/// The context of the train loop that runs on this thread; throws
/// `std::logic_error` outside of one.
train_context& context();

} // namespace troupe
