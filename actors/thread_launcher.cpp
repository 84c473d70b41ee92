#include "troupe/actors/thread_launcher.hpp"

#include <unistd.h>

#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/threads.hpp"
#include "troupe/runtime/store/result.hpp"

namespace troupe::internal {

// -- the lent thread

bool lent_thread::run(std::function<void()> job) {
  std::lock_guard guard{mutex_};
  if (taken_back_)
    return false;
  jobs_.push_back(std::move(job));
  changed_.notify_all();
  return true;
}

void lent_thread::serve() {
  std::unique_lock lock{mutex_};
  for (;;) {
    changed_.wait(lock, [this] { return taken_back_ || !jobs_.empty(); });
    if (taken_back_)
      return;
    auto job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
  }
}

void lent_thread::take_back() {
  std::lock_guard guard{mutex_};
  taken_back_ = true;
  changed_.notify_all();
}

// -- the launcher

/// Outlives the launcher while a thread is left behind.
struct thread_launcher::shared {
  explicit shared(body_type f) : body(std::move(f)) {}

  body_type body;
  mutable std::mutex mutex;
  std::condition_variable changed;
  int running = 0;
};

thread_launcher::thread_launcher(body_type body,
                                 std::shared_ptr<lent_thread> lent)
  : shared_(std::make_shared<shared>(std::move(body))), lent_(std::move(lent)) {
}

void thread_launcher::launch(std::uint64_t attempt, int rank, int segment,
                             const listener& tell) {
  // A duplicate: a thread that is left behind must not find the segment of
  // another attempt under the same number.
  auto memory = duplicate(segment);
  if (!memory) {
    tell(rank_launch_failed{attempt, rank, memory.error()});
    return;
  }
  auto own = std::make_shared<unique_fd>(std::move(*memory));
  auto run = [=, x = shared_]() mutable {
    process_exit how;
    try {
      x->body(attempt, rank, own->get());
    } catch (...) { // The process is the user's, and has other ranks.
      how = {.code = 1,
             .termination_message = caught("the rank's thread").message};
    }
    own.reset();
    tell(rank_exited{attempt, rank, std::move(how)});
  };
  if (lent_) {
    tell(rank_launched{attempt, rank, getpid()});
    if (!lent_->run(std::move(run)))
      tell(rank_exited{attempt, rank, {.how = process_exit::kind::lost}});
    return;
  }
  {
    std::lock_guard guard{shared_->mutex};
    ++shared_->running;
  }
  auto thread = start_user_thread([run, x = shared_]() mutable {
    run();
    std::lock_guard guard{x->mutex};
    --x->running;
    x->changed.notify_all();
  });
  if (thread) {
    thread->detach();
    tell(rank_launched{attempt, rank, getpid()});
  } else {
    std::lock_guard guard{shared_->mutex};
    --shared_->running;
    tell(rank_launch_failed{attempt, rank, std::move(thread.error())});
  }
}

void thread_launcher::kill(int) {}

int thread_launcher::running() const noexcept {
  std::lock_guard guard{shared_->mutex};
  return shared_->running;
}

void thread_launcher::join() {
  std::unique_lock guard{shared_->mutex};
  shared_->changed.wait(guard, [this] { return shared_->running == 0; });
}

void thread_launcher::forget() {
  body_type last; // Destroyed without the lock.
  std::lock_guard guard{shared_->mutex};
  if (!lent_ && shared_->running == 0)
    last.swap(shared_->body);
}

} // namespace troupe::internal
