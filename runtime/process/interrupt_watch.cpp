#include "troupe/runtime/process/interrupt_watch.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <mutex>

#include <sys/eventfd.h>
#include <unistd.h>

namespace troupe {
namespace {

// The handler may only touch these.
std::atomic<int> signals_seen{0};
std::atomic<int> signal_seen_first{0};
std::atomic<int> event{-1};

constexpr std::array watched{SIGINT, SIGTERM};

struct shared_watch {
  std::mutex mutex;
  int users = 0;
  unique_fd event_owner;
  std::array<struct sigaction, watched.size()> before;
};

shared_watch& shared() {
  static shared_watch instance;
  return instance;
}

void on_signal(int signal) {
  int saved_errno = errno;
  int n = ++signals_seen;
  if (n == 1) {
    signal_seen_first = signal;
    std::uint64_t one = 1;
    [[maybe_unused]] auto written = ::write(event, &one, sizeof(one));
  }
  if (n >= 3)
    ::_exit(128 + signal);
  errno = saved_errno;
}

void install(shared_watch& state) {
  signals_seen = 0;
  signal_seen_first = 0;
  state.event_owner.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  event = state.event_owner.get();
  struct sigaction ours {};
  ours.sa_handler = on_signal;
  ours.sa_flags = SA_RESTART;
  for (std::size_t i = 0; i < watched.size(); ++i) {
    ::sigaction(watched[i], nullptr, &state.before[i]);
    if (state.before[i].sa_handler == SIG_DFL)
      ::sigaction(watched[i], &ours, nullptr);
  }
}

void restore(shared_watch& state) {
  for (std::size_t i = 0; i < watched.size(); ++i) {
    struct sigaction now {};
    ::sigaction(watched[i], nullptr, &now);
    // The program may have put in a handler of its own meanwhile.
    if (now.sa_handler == on_signal)
      ::sigaction(watched[i], &state.before[i], nullptr);
  }
  event = -1;
  state.event_owner.reset();
}

} // namespace

interrupt_watch::interrupt_watch() {
  auto& state = shared();
  std::lock_guard guard{state.mutex};
  if (state.users == 0) {
    if (::gettid() != ::getpid())
      return;
    install(state);
  }
  auto copy = duplicate(state.event_owner.get());
  if (copy) {
    fd_ = std::move(*copy);
    ++state.users;
  } else if (state.users == 0) {
    restore(state); // Nobody could be told of a signal.
  }
}

interrupt_watch::~interrupt_watch() {
  if (!fd_)
    return;
  auto& state = shared();
  std::lock_guard guard{state.mutex};
  if (--state.users == 0)
    restore(state);
}

int interrupt_watch::first_signal() const noexcept {
  return fd_ ? signal_seen_first.load() : 0;
}

int interrupt_watch::count() const noexcept {
  return fd_ ? signals_seen.load() : 0;
}

} // namespace troupe
