#include "troupe/runtime/process/threads.hpp"

#include <utility>

namespace troupe::internal {

expected<void> sync_thread::start(std::function<bool()> act) {
  std::lock_guard joining{join_mutex_};
  {
    std::lock_guard guard{mutex_};
    if (ended_)
      return {};
    stopped_ = false;
  }
  return start_thread([this, act = std::move(act)] { run(act); })
    .map([this](std::thread x) { thread_ = std::move(x); });
}

void sync_thread::stop() {
  {
    std::lock_guard guard{mutex_};
    stopped_ = true;
  }
  changed_.notify_all();
  std::lock_guard guard{join_mutex_};
  if (thread_.joinable())
    thread_.join();
}

void sync_thread::end() {
  {
    std::lock_guard guard{mutex_};
    ended_ = true;
  }
  stop();
}

void sync_thread::run(const std::function<bool()>& act) {
  auto next = std::chrono::steady_clock::now() + interval;
  std::unique_lock lock{mutex_};
  for (;;) {
    if (changed_.wait_until(lock, next, [this] { return stopped_; }))
      return;
    next = std::chrono::steady_clock::now() + interval;
    lock.unlock();
    try {
      if (!act())
        return;
    } catch (...) { // No memory even for the error: try again in a second.
    }
    lock.lock();
  }
}

} // namespace troupe::internal
