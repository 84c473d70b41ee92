#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace troupe {

/// A thread that runs tasks one by one in the order in which they were given.
class ordered_worker {
public:
  ordered_worker();
  ~ordered_worker() { join(); }

  ordered_worker(const ordered_worker&) = delete;
  ordered_worker& operator=(const ordered_worker&) = delete;

  /// Tasks must not throw. False after `join` has begun.
  bool add(std::function<void()> task);

  /// Runs what is left and ends the thread. Calls *poke* again and again until
  /// that is done, to wake a task that waits for something. A task may call it:
  /// what is left then runs inside the call, and the thread ends with the task.
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
};

} // namespace troupe
