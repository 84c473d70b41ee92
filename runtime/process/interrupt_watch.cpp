#include "troupe/runtime/process/interrupt_watch.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include <time.h>
#include <unistd.h>

#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {
namespace {

// The handler may only touch these.
signal_count signals_counted;
std::atomic<int> signal_seen_first{0};
std::atomic<std::uint64_t> kinds_seen{0};
std::atomic<int> event{-1};
/// The process that handles the signals; forked processes do not.
std::atomic<pid_t> watching_process{0};

/// Signals that ask a process to end, besides those that preempt.
constexpr std::array always_watched{SIGINT, SIGTERM, SIGHUP};

constexpr int max_signal = 64;

constexpr std::uint64_t bit_of(int signal) {
  return std::uint64_t{1} << (signal - 1);
}

struct shared_watch {
  std::mutex mutex;
  int users = 0;
  bool is_over = false;     ///< Handled by a watch; later ones are too late.
  std::uint64_t heeded = 0; ///< Kinds of signals.
  /// Never closed: a handler on another thread may be about to write to it.
  std::optional<wake_event> event_owner;
  pid_t event_process = 0; ///< Whose it is; forked processes make their own.
  std::map<int, struct sigaction> before; ///< Of the signals that are watched.
};

/// Never destroyed: signals may come until the program has ended.
shared_watch& shared() {
  static auto instance = new shared_watch;
  return *instance;
}

void on_signal(int signal) {
  if (::getpid() != watching_process)
    return take_default_action(signal);
  int saved_errno = errno;
  // Counted before it is seen: what another thread does for this signal must
  // not find that one more has come since.
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  if (signals_counted.add(now.tv_sec * std::int64_t{1'000'000'000}
                          + now.tv_nsec)
      >= 3)
    ::_exit(128 + signal);
  kinds_seen |= bit_of(signal);
  if (int none = 0; signal_seen_first.compare_exchange_strong(none, signal))
    wake_event::notify(event);
  errno = saved_errno;
}

void leave_to_the_driver(int signal) {
  if (::getpid() != watching_process)
    take_default_action(signal);
}

void begin(shared_watch& state) {
  signals_counted.reset();
  signal_seen_first = 0;
  kinds_seen = 0;
  state.is_over = false;
  state.heeded = 0;
  if (std::exchange(state.event_process, ::getpid()) != ::getpid()
      || !*state.event_owner)
    state.event_owner.emplace();
  state.event_owner->clear(); // Of an earlier watch.
  event = state.event_owner->fd();
  watching_process = ::getpid();
}

void watch(shared_watch& state, int signal) {
  if (signal < 1 || signal > max_signal || state.before.contains(signal))
    return;
  struct sigaction ours {};
  ours.sa_handler = on_signal;
  ours.sa_flags = SA_RESTART;
  struct sigaction before {};
  if (::sigaction(signal, nullptr, &before) != 0
      || before.sa_handler != SIG_DFL)
    return;
  if (::sigaction(signal, &ours, nullptr) == 0)
    state.before[signal] = before;
}

void restore(shared_watch& state) {
  for (auto& [signal, before] : state.before) {
    struct sigaction now {};
    ::sigaction(signal, nullptr, &now);
    // The program may have installed its own handler meanwhile.
    if (now.sa_handler == on_signal)
      ::sigaction(signal, &before, nullptr);
  }
  state.before.clear();
  event = -1;
}

/// The first signal that was not handled; 0: none.
int too_late(const shared_watch& state) {
  auto left = state.is_over ? kinds_seen & ~state.heeded : 0;
  auto is_left = [left](int signal) { return (left & bit_of(signal)) != 0; };
  auto first = std::ranges::find(always_watched, signal_seen_first.load());
  if (first == always_watched.end() || !is_left(*first))
    first = std::ranges::find_if(always_watched, is_left);
  return first != always_watched.end() ? *first : 0;
}

} // namespace

int signal_count::add(std::int64_t now_ns) noexcept {
  auto last = last_ns_.load();
  auto counts = now_ns - last >= echo_ns;
  // If two threads come at the same moment, one counts.
  return counts && last_ns_.compare_exchange_strong(last, now_ns)
           ? ++count_
           : count_.load();
}

void signal_count::reset() noexcept {
  count_ = 0;
  last_ns_ = never;
}

interrupt_watch::interrupt_watch(const std::vector<int>& preempting) {
  for (auto signal : preempting)
    if (signal >= 1 && signal <= max_signal)
      preempting_ |= bit_of(signal);
  auto& state = shared();
  std::lock_guard guard{state.mutex};
  if (state.users > 0 && ::getpid() != watching_process) {
    restore(state); // Forked while its parent watched.
    state.users = 0;
  }
  if (state.users == 0) {
    if (::gettid() != ::getpid())
      return;
    begin(state);
  }
  for (auto signal : always_watched)
    watch(state, signal);
  for (auto signal : preempting)
    watch(state, signal);
  auto copy = duplicate(state.event_owner->fd());
  if (copy) {
    fd_ = std::move(*copy);
    ++state.users;
  } else if (state.users == 0) {
    restore(state); // No one would learn of a signal.
  }
}

interrupt_watch::~interrupt_watch() {
  if (!fd_)
    return;
  auto& state = shared();
  int signal = 0;
  {
    std::lock_guard guard{state.mutex};
    if (--state.users > 0)
      return;
    restore(state);
    signal = too_late(state);
  }
  if (signal != 0)
    ::kill(::getpid(), signal);
}

interrupt interrupt_watch::asked() const noexcept {
  auto seen = fd_ ? kinds_seen.load() : 0;
  if ((seen & ~preempting_) != 0)
    return interrupt::stop;
  return seen != 0 ? interrupt::preempt : interrupt::none;
}

int interrupt_watch::asking_signal() const noexcept {
  auto seen = fd_ ? kinds_seen.load() : 0;
  auto stopping = seen & ~preempting_;
  auto asking = stopping != 0 ? stopping : seen;
  if (asking == 0)
    return 0;
  auto first = signal_seen_first.load();
  return first != 0 && (asking & bit_of(first)) != 0
           ? first
           : std::countr_zero(asking) + 1;
}

int interrupt_watch::count() const noexcept {
  return fd_ ? signals_counted.count() : 0;
}

void interrupt_watch::answer(interrupt heeded) noexcept {
  if (!fd_)
    return;
  auto& state = shared();
  std::lock_guard guard{state.mutex};
  state.is_over = true;
  if (heeded == interrupt::stop)
    state.heeded = ~std::uint64_t{0};
  else if (heeded == interrupt::preempt)
    state.heeded |= preempting_;
}

std::string signal_text(int signal) {
  auto name = ::sigabbrev_np(signal);
  return name ? std::string{"SIG"} + name : concat("signal ", signal);
}

void leave_signals_to_the_driver() noexcept {
  struct sigaction pass {};
  pass.sa_handler = leave_to_the_driver;
  pass.sa_flags = SA_RESTART;
  watching_process = ::getpid();
  for (int signal : {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2})
    ::sigaction(signal, &pass, nullptr);
}

void take_default_action(int signal) noexcept {
  ::signal(signal, SIG_DFL);
  ::raise(signal); // It waits for the handler's end, which blocks it.
}

} // namespace troupe::internal
