#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/process/stack_dump.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

/// A thread for code of the user: it has the caller's signal mask, which
/// threads and programs that this code starts inherit. `ec::spawn` if the
/// system has no thread left: *body* is then destroyed in the caller.
template <class Body>
expected<std::thread> start_user_thread(Body body) {
  try {
    return std::thread{std::move(body)};
  } catch (const std::exception& problem) { // No thread, or no memory for it.
    return failure(ec::spawn, std::string{"no thread: "} + problem.what());
  }
}

/// The same for code of Troupe: the thread runs no signal handler of the
/// program, except that of `stack_signal`.
template <class Body>
expected<std::thread> start_thread(Body body) {
  sigset_t all, before;
  sigfillset(&all);
  sigdelset(&all, stack_signal());
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  auto result = start_user_thread(std::move(body));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return result;
}

/// `start_thread` with a detached thread.
template <class Body>
expected<void> start_detached_thread(Body body) {
  return start_thread(std::move(body)).map([](std::thread x) { x.detach(); });
}

/// Starts *count* threads at once and ends them: `ec::spawn` if the system does
/// not have that many left. For code that would not survive a lack of threads.
inline expected<void> expect_threads(std::size_t count) {
  std::atomic<bool> over = false;
  std::vector<std::thread> threads;
  std::vector<std::atomic<long>> ids(count);
  expected<void> result;
  while (result && threads.size() < count) {
    auto x = start_thread([&over, &id = ids[threads.size()]] {
      id = ::syscall(SYS_gettid);
      over.wait(false);
    });
    if (x)
      threads.push_back(std::move(*x));
    else
      result =
        failure(ec::spawn, concat("the run needs ", count,
                                  " more threads, but this host allows only ",
                                  threads.size(), ": ", x.error().message));
  }
  over = true;
  over.notify_all();
  for (auto& x : threads)
    x.join();
  // A joined thread counts until the system has removed it.
  for (std::size_t i = 0; i < threads.size(); ++i)
    for (int looks = 0;
         looks < 10000
         && ::syscall(SYS_tgkill, ::getpid(), ids[i].load(), 0) == 0;
         ++looks)
      std::this_thread::yield();
  return result;
}

/// Calls a function once a second on a separate thread, so that nothing delays
/// it: neither a commit nor a loop that does not report.
class sync_thread {
public:
  /// From one begin to the next; a call that takes longer is followed at once.
  static constexpr auto interval = std::chrono::seconds{1};

  sync_thread() = default;
  sync_thread(const sync_thread&) = delete;
  sync_thread& operator=(const sync_thread&) = delete;

  /// Waits for a call under way.
  ~sync_thread() { stop(); }

  /// Begins to call *act*; the first false ends it, and an exception counts as
  /// true. `ec::spawn` if the system has no thread left. One that was stopped
  /// may start again; one that was ended does not.
  expected<void> start(std::function<bool()> act);

  /// No call is under way or comes any more. Any thread but its own may call.
  void stop();

  /// The same, permanently.
  void end();

private:
  void run(const std::function<bool()>& act);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  bool ended_ = false;
  std::mutex join_mutex_; // guards what follows
  std::thread thread_;
};

} // namespace troupe::internal
