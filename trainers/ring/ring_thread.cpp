#include "troupe/trainers/ring/ring_thread.hpp"

#include <pthread.h>

#include "troupe/runtime/process/threads.hpp"

namespace troupe::internal {

ring_thread::~ring_thread() {
  {
    std::lock_guard guard{mutex_};
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable())
    thread_.join();
}

expected<void> ring_thread::start(host_ring::ticket last) {
  if (!thread_.joinable()) {
    TROUPE_TRY(thread_, start_thread([this] { work(); }));
  }
  {
    std::lock_guard guard{mutex_};
    // Jobs since its last one were run by the caller.
    if (done_ >= wanted_)
      done_ = last - 1;
    wanted_ = last;
  }
  changed_.notify_all();
  return {};
}

expected<void> ring_thread::wait(host_ring::ticket last) {
  std::unique_lock guard{mutex_};
  changed_.wait(guard, [&] { return done_ >= last || failure_; });
  if (done_ < last)
    return tl::unexpected{failure_};
  return {};
}

void ring_thread::work() {
  ::pthread_setname_np(::pthread_self(), "troupe-ring");
  std::unique_lock guard{mutex_};
  for (;;) {
    changed_.wait(guard, [this] { return stopping_ || wanted_ > done_; });
    if (wanted_ <= done_ || failure_)
      return;
    // One by one: each is waited for.
    auto next = done_ + 1;
    guard.unlock();
    auto result = ring_.run(next);
    guard.lock();
    if (result)
      done_ = next;
    else
      failure_ = result.error();
    changed_.notify_all();
  }
}

} // namespace troupe::internal
