#include "troupe/trainers/torch/groups/ordered_worker.hpp"

#include <chrono>

#include <pthread.h>

namespace troupe {

bool ordered_worker::add(std::function<void()> task) {
  {
    std::lock_guard guard{mutex_};
    if (stopping_)
      return false;
    tasks_.push_back(std::move(task));
  }
  changed_.notify_all();
  return true;
}

void ordered_worker::join(const std::function<void()>& poke) {
  if (!thread_.joinable())
    return;
  std::unique_lock guard{mutex_};
  stopping_ = true;
  changed_.notify_all();
  while (!done_) {
    if (poke)
      poke();
    changed_.wait_for(guard, std::chrono::milliseconds{5});
  }
  guard.unlock();
  thread_.join();
}

void ordered_worker::run() {
  ::pthread_setname_np(::pthread_self(), "troupe-group");
  std::unique_lock guard{mutex_};
  for (;;) {
    changed_.wait(guard, [this] { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty())
      break;
    auto task = std::move(tasks_.front());
    tasks_.pop_front();
    guard.unlock();
    task();
    task = nullptr; // Whatever it holds goes before the lock comes.
    guard.lock();
  }
  done_ = true;
  changed_.notify_all();
}

} // namespace troupe
