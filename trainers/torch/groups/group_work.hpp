#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "troupe/runtime/process/forked_process.hpp"
#include "troupe/runtime/process/rank_activity.hpp"

namespace troupe::internal {

/// Shows the worker group which collectives of one group the loop calls, and
/// which one it waits for. Made by the loop's thread; it may outlive the shared
/// memory.
class shown_calls {
public:
  explicit shown_calls(const std::shared_ptr<rank_activity>& activity)
    : activity_(activity) {}

  /// Counts a call; returns its number, from 1.
  std::uint64_t add() noexcept;

  /// A call failed at once: the counts are no longer meaningful.
  void lose_count() noexcept;

  /// A collective failed. The first failure is recorded.
  void fail(collective_failure how) noexcept;

  /// While the result exists, the calling thread waits for collective *number*;
  /// 0: for all calls so far.
  [[nodiscard]] std::shared_ptr<void> wait_for(std::uint64_t number);

private:
  bool on_loops_thread() const noexcept {
    return std::this_thread::get_id() == loop_;
  }

  std::weak_ptr<rank_activity> activity_;
  const std::thread::id loop_ = std::this_thread::get_id();
};

/// A group that shows its calls.
class showing_group {
public:
  explicit showing_group(const std::shared_ptr<rank_activity>& activity)
    : shown_(std::make_shared<shown_calls>(activity)) {}

  virtual ~showing_group() = default;

  const std::shared_ptr<shown_calls>& shown() const noexcept { return shown_; }

private:
  const std::shared_ptr<shown_calls> shown_;
};

/// Whether every rank needs all of the others in a collective of *type*.
bool needs_all_ranks(c10d::OpType type) noexcept;

/// The work that a collective of our groups returns: completed explicitly,
/// once, from any thread. Its future holds the output tensors, as a list or a
/// list of lists, in the shape that Gloo's futures have.
class group_work : public c10d::Work {
public:
  /// The collective writes to *outputs*. Waits for it are recorded in *shown*
  /// if it *needs_all* ranks.
  group_work(int rank, c10d::OpType type,
             std::vector<std::vector<at::Tensor>> outputs,
             std::uint64_t sequence, std::chrono::milliseconds timeout,
             std::shared_ptr<shown_calls> shown, bool needs_all);

  /// *x* completes this work, so it must not wait for it. Before other threads
  /// see the work.
  void set_thread(std::thread::id x) noexcept { thread_ = x; }

  /// Both return false if the work was completed before.
  bool succeed();
  bool fail(std::exception_ptr reason, collective_failure how);

  /// Throws `train_error` where it would wait forever: in a callback of a
  /// future on the thread that would have to complete this work, and in a
  /// process that was forked meanwhile, which has no such thread.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;

  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  std::uint64_t getSequencenumber() const override { return sequence_; }
  /// Overrides what newer c10d::Work declare.
  std::chrono::milliseconds getTimeout() const { return timeout_; }

private:
  [[noreturn]] void refuse_wait(std::string_view why) const;

  std::vector<std::vector<at::Tensor>> outputs_;
  std::uint64_t sequence_;
  std::chrono::milliseconds timeout_;
  std::atomic<bool> done_{false};
  std::thread::id thread_;
  const owner_process owner_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  const std::shared_ptr<shown_calls> shown_;
  const std::uint64_t call_; ///< Its number there.
  const bool needs_all_;
};

/// A thread that runs tasks one by one, in the order of `add`.
class ordered_worker {
public:
  ordered_worker();
  ~ordered_worker() { join(); }

  ordered_worker(const ordered_worker&) = delete;
  ordered_worker& operator=(const ordered_worker&) = delete;

  /// The id of the thread that runs the tasks.
  std::thread::id id() const noexcept { return id_; }

  /// Tasks must not throw. False after `join` has begun.
  bool add(std::function<void()> task);

  /// Runs the remaining tasks and ends the thread. Calls *poke* repeatedly
  /// until that is done, to wake a task that waits. A task may call it: the
  /// remaining tasks then run inside the call, and the thread ends with the
  /// task.
  void join(const std::function<void()>& poke = {});

private:
  /// Outlives the worker if one of its own tasks destroys it.
  struct queue {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> tasks;
    bool stopping = false;
    bool done = false;
  };

  static void run(queue& x);
  void finish_here(const std::function<void()>& poke);

  std::shared_ptr<queue> queue_ = std::make_shared<queue>();
  std::thread thread_;
  const std::thread::id id_ = thread_.get_id();
};

} // namespace troupe::internal
