#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/process/stack_dump.hpp"

namespace troupe {

/// A thread that runs *body* and on which no signal handler of the program
/// does, save that of `stack_signal`; `ec::spawn` if the system has no thread
/// left. *body* is destroyed in the caller then.
template <class Body>
expected<std::thread> start_thread(Body body) {
  sigset_t all, before;
  sigfillset(&all);
  sigdelset(&all, stack_signal());
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  expected<std::thread> result;
  try {
    result = std::thread{std::move(body)};
  } catch (const std::exception& problem) { // No thread, or no memory for it.
    result = failure(ec::spawn, std::string{"no thread: "} + problem.what());
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return result;
}

/// The same with a thread that no one waits for.
template <class Body>
expected<void> start_detached_thread(Body body) {
  return start_thread(std::move(body)).map([](std::thread x) { x.detach(); });
}

/// Starts *count* threads at once and ends them: `ec::spawn` if the system has
/// not so many left. For what comes next and would not survive their lack.
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
      result = failure(ec::spawn, "the run needs " + std::to_string(count)
                                    + " more threads, and this host gives it "
                                    + std::to_string(threads.size()) + ": "
                                    + x.error().message);
  }
  over = true;
  over.notify_all();
  for (auto& x : threads)
    x.join();
  // A thread that was joined counts until the system has forgotten it.
  for (std::size_t i = 0; i < threads.size(); ++i)
    for (int looks = 0;
         looks < 10000
         && ::syscall(SYS_tgkill, ::getpid(), ids[i].load(), 0) == 0;
         ++looks)
      std::this_thread::yield();
  return result;
}

} // namespace troupe
