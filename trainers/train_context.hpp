#pragma once

#include <any>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
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

namespace troupe {

namespace internal {
class rank_link;
} // namespace internal

/// Leaves the train loop when a call of its context cannot succeed: bad
/// arguments, a failed peer, full storage.
class train_error : public std::runtime_error {
public:
  explicit train_error(error reason)
    : std::runtime_error(reason.message), reason_(std::move(reason)) {}

  const error& reason() const noexcept { return reason_; }

private:
  error reason_;
};

/// The value of *x*; throws its error as `train_error`.
template <class T>
T value_or_throw(expected<T> x) {
  if (!x)
    throw train_error{std::move(x.error())};
  if constexpr (!std::is_void_v<T>)
    return std::move(*x);
}

/// Leaves the train loop because the run stops. Do not catch it: it is not a
/// failure of the rank.
class run_stopped : public train_error {
  using train_error::train_error;
};

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
  using report_hook = decltype(rank_hooks::on_report);

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
  std::uint64_t attempt() const noexcept { return facts_.attempt; }
  const std::string& experiment_name() const noexcept {
    return facts_.run_name;
  }
  /// 32 hex digits that name the run; the same after every restart, of ranks
  /// and of the driver.
  const std::string& trial_id() const noexcept { return facts_.run_id; }
  /// Folder of the run on its storage.
  fs::path run_path() const { return facts_.run_path; }
  const rank_facts& facts() const noexcept { return facts_; }

  /// At first the checkpoint to resume from; later the last one that this rank
  /// reported. A loop that reports without having called this, although there
  /// is one to resume from, causes a warning: it trains from the beginning.
  const std::optional<troupe::checkpoint>& checkpoint() const noexcept {
    is_unread_ = false;
    return checkpoint_;
  }

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

  /// The same with the files of a folder, copied or moved as *options* say.
  void report(const metrics& values, const troupe::checkpoint& files,
              const report_options& options = {});

  /// Adds *x* to the run's journal, ahead of later reports of this rank, for
  /// trackers: see `tracking_handle`. The run's own kinds, such as `run_ended`,
  /// are refused.
  void log(loop_event x);

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
  /// `run_stopped`.
  bool stop_requested() const noexcept;

  /// Why and by when, if `stop_requested()`.
  std::optional<troupe::stop_info> stop_info() const;

  /// The loop has ended: releases the data plane and refuses all later
  /// calls.
  void end();

  /// Calls *f* at the end of every report. Its exceptions leave `report` as a
  /// `train_error` that names the hook, and are kept in `hook_failure`.
  void on_report(report_hook f) { on_report_ = std::move(f); }

  /// Calls *f* at the start of `report` and `new_checkpoint` while the result
  /// exists, for a data plane that must refuse invalid results; its exceptions
  /// leave both.
  [[nodiscard]] std::shared_ptr<void> before_report(std::function<void()> f);

  /// Why the hook of reports failed; `ec::none` if it did not.
  const error& hook_failure() const noexcept { return hook_failure_; }

  /// The control plane, for data planes and tests.
  internal::rank_link& link() noexcept { return *link_; }

  /// A slot for the data plane (group, device) of the trainer that started the
  /// loop, until the loop has ended.
  std::any& data_plane() noexcept { return data_plane_; }

private:
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

  /// The link for *call*, if this thread may make it now.
  internal::rank_link& link_for(const char* call);
  std::string broadcast(expected<std::string> bytes);
  void call_before_report();
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
  report_hook on_report_;
  std::vector<std::weak_ptr<std::function<void()>>> before_report_;
  bool in_hook_ = false;
  error hook_failure_;
  std::any data_plane_;
  const internal::owner_process process_;
  const std::thread::id owner_;
  std::atomic<bool> ended_ = false;
};

/// The context of the train loop that runs on this thread; throws
/// `std::logic_error` outside of one.
train_context& context();

} // namespace troupe
