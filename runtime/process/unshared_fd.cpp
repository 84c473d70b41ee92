#include "troupe/runtime/process/unshared_fd.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <new>
#include <vector>

namespace troupe::internal {

namespace {

/// The numbers of all `unshared_fd`s of this process.
struct unshared_numbers {
  std::mutex pause; ///< A fork has it; guards the next two.
  std::condition_variable none;
  int pauses = 0;   ///< `fork_pause`s; a fork waits until there is none.
  std::mutex mutex; ///< Taken after `pause`, for moments; guards the next.
  std::vector<int> all;

  /// No child gets *number* any more. Needs `mutex`.
  void erase(int number) noexcept {
    if (auto found = std::ranges::find(all, number); found != all.end())
      all.erase(found);
  }
};

/// Never destroyed: a program may fork until its end.
unshared_numbers& numbers() {
  static auto instance = new unshared_numbers;
  return *instance;
}

// Only what is safe in a child of several threads. The numbers stay in use:
// copies of their owners in the child may still close them.
void replace_in_child() noexcept {
  auto code = errno;
  auto& own = numbers();
  int null = -1;
  for (auto x : own.all) {
    ::close(x); // First: the child may have no other number free.
    if (null < 0)
      null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0 && null != x)
      ::dup3(null, x, O_CLOEXEC);
  }
  if (null >= 0 && null != own.all.front())
    ::close(null);
  own.all.clear();
  own.mutex.unlock();
  new (&own.none) std::condition_variable; // Its waiters are not here.
  own.pause.unlock();
  errno = code;
}

void begin_fork() {
  auto& own = numbers();
  std::unique_lock guard{own.pause};
  own.none.wait(guard, [&own] { return own.pauses == 0; });
  guard.release(); // Until the fork has ended.
  own.mutex.lock();
}

void end_fork() {
  numbers().mutex.unlock();
  numbers().pause.unlock();
}

unshared_numbers& watched_numbers() {
  static const auto failed =
    ::pthread_atfork(begin_fork, end_fork, replace_in_child);
  (void) failed; // Without memory: children keep all until they end.
  return numbers();
}

} // namespace

fork_pause::fork_pause() {
  auto& own = watched_numbers();
  std::lock_guard guard{own.pause};
  ++own.pauses;
}

fork_pause::~fork_pause() {
  auto& own = watched_numbers();
  std::lock_guard guard{own.pause};
  if (--own.pauses == 0)
    own.none.notify_all();
}

unshared_fd::unshared_fd(unique_fd fd) noexcept
  : fd_(std::move(fd)), number_(fd_.get()) {
  if (number_ < 0)
    return;
  auto& own = watched_numbers();
  std::lock_guard guard{own.mutex};
  try {
    own.all.push_back(number_);
  } catch (const std::bad_alloc&) { // Children keep it until they end.
  }
}

unshared_fd& unshared_fd::operator=(unshared_fd&& other) noexcept {
  reset();
  fd_ = std::move(other.fd_);
  number_ = std::exchange(other.number_, -1);
  return *this;
}

void unshared_fd::reset() noexcept {
  if (number_ < 0)
    return;
  // Together: no fork in between may give it to a child, nor take its number
  // for another file's.
  auto& own = watched_numbers();
  std::lock_guard guard{own.mutex};
  own.erase(number_);
  fd_.reset();
  number_ = -1;
}

unique_fd unshared_fd::release(const fork_pause&) noexcept {
  auto& own = watched_numbers();
  std::lock_guard guard{own.mutex};
  own.erase(std::exchange(number_, -1));
  return std::move(fd_);
}

} // namespace troupe::internal
