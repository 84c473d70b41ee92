#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace troupe {

/// A thread that runs tasks one by one in the order in which they were given.
class ordered_worker {
public:
  ordered_worker() : thread_([this] { run(); }) {}
  ~ordered_worker() { join(); }

  ordered_worker(const ordered_worker&) = delete;
  ordered_worker& operator=(const ordered_worker&) = delete;

  /// Tasks must not throw. False after `join` has begun.
  bool add(std::function<void()> task);

  /// Runs what is left and ends the thread. Calls *poke* again and again until
  /// that is done, to wake a task that waits for something.
  void join(const std::function<void()>& poke = {});

private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  bool done_ = false;
  std::thread thread_; // Last: it uses all of the above.
};

} // namespace troupe
