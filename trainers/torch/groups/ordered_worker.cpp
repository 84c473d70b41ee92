#include "troupe/trainers/torch/groups/ordered_worker.hpp"

#include <chrono>

#include <pthread.h>

namespace troupe {

ordered_worker::ordered_worker()
  : thread_([shared = queue_] { run(*shared); }) {}

bool ordered_worker::add(std::function<void()> task) {
  {
    std::lock_guard guard{queue_->mutex};
    if (queue_->stopping)
      return false;
    queue_->tasks.push_back(std::move(task));
  }
  queue_->changed.notify_all();
  return true;
}

void ordered_worker::join(const std::function<void()>& poke) {
  if (!thread_.joinable())
    return;
  if (thread_.get_id() == std::this_thread::get_id())
    return finish_here(poke);
  std::unique_lock guard{queue_->mutex};
  queue_->stopping = true;
  queue_->changed.notify_all();
  while (!queue_->done) {
    if (poke)
      poke();
    queue_->changed.wait_for(guard, std::chrono::milliseconds{5});
  }
  guard.unlock();
  thread_.join();
}

void ordered_worker::finish_here(const std::function<void()>& poke) {
  if (poke)
    poke();
  std::unique_lock guard{queue_->mutex};
  queue_->stopping = true;
  while (!queue_->tasks.empty()) {
    auto task = std::move(queue_->tasks.front());
    queue_->tasks.pop_front();
    guard.unlock();
    task();
    task = nullptr;
    guard.lock();
  }
  thread_.detach();
}

void ordered_worker::run(queue& x) {
  ::pthread_setname_np(::pthread_self(), "troupe-group");
  std::unique_lock guard{x.mutex};
  for (;;) {
    x.changed.wait(guard, [&x] { return x.stopping || !x.tasks.empty(); });
    if (x.tasks.empty())
      break;
    auto task = std::move(x.tasks.front());
    x.tasks.pop_front();
    guard.unlock();
    task();
    task = nullptr; // Whatever it holds goes before the lock comes.
    guard.lock();
  }
  x.done = true;
  x.changed.notify_all();
}

} // namespace troupe
