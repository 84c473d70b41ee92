#pragma once

#include <csignal>
#include <system_error>
#include <thread>
#include <utility>

#include "troupe/runtime/error.hpp"

namespace troupe {

/// A thread that runs *body* and on which no signal handler of the program
/// does; `ec::spawn` if the system has no thread left.
template <class Body>
expected<std::thread> start_thread(Body body) {
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  expected<std::thread> result;
  try {
    result = std::thread{std::move(body)};
  } catch (const std::system_error& problem) {
    result = failure(ec::spawn, std::string{"no thread: "} + problem.what());
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return result;
}

} // namespace troupe
