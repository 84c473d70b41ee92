#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal {

/// What signals ask of a run.
enum class interrupt {
  none,
  preempt, ///< The run is preempted, with time for a last checkpoint.
  stop,    ///< The run is to stop.
};

/// Counts requests by signal. Senders repeat signals within moments (`timeout`
/// and `sudo` forward signals that the whole group got, systemd sends SIGHUP
/// after SIGTERM); such repetitions count once. Safe in signal handlers.
class signal_count {
public:
  /// Longer than between such repetitions, shorter than between repeated
  /// presses of Ctrl-C.
  static constexpr std::int64_t echo_ns = 300'000'000;

  /// Counts a signal at *now_ns*, by a monotonic clock; returns how many have
  /// counted so far. Those within `echo_ns` of the last one that counted do
  /// not.
  int add(std::int64_t now_ns) noexcept;

  int count() const noexcept { return count_; }

  void reset() noexcept;

private:
  static constexpr std::int64_t never =
    std::numeric_limits<std::int64_t>::min() / 2;

  std::atomic<int> count_{0};
  std::atomic<std::int64_t> last_ns_{never};
};

/// While it exists, SIGINT, SIGTERM, SIGHUP and the given signals ask for an
/// orderly end instead of ending the process: the first makes `fd()` readable,
/// later ones may ask for more, and the third (by `signal_count`) exits at once
/// with code 128 + signal.
///
/// Processes forked meanwhile handle signals by default.
///
/// Signals that the program handles or ignores are left alone. Several watches
/// may exist at once, in any order: all see the same signals, and the last one
/// restores the previous handlers. If it is created on a thread other than the
/// main one and no other watch exists, it watches nothing: signals are then
/// left to the service that started the run.
class interrupt_watch {
public:
  /// The signals of *preempting* preempt the run; all others stop it.
  explicit interrupt_watch(const std::vector<int>& preempting = {});
  interrupt_watch(const interrupt_watch&) = delete;
  interrupt_watch& operator=(const interrupt_watch&) = delete;
  ~interrupt_watch();

  /// Becomes and stays readable with the first signal; -1 if nothing is
  /// watched. Do not read from it.
  int fd() const noexcept { return fd_.get(); }

  /// What the signals so far ask for: a stop counts more than a preemption.
  interrupt asked() const noexcept;

  /// The signal behind `asked()`, of several the first; 0: none.
  int asking_signal() const noexcept;

  /// How many signals have counted since the first of the existing watches was
  /// created, with each one that `asked()` shows.
  int count() const noexcept;

  /// Records which request of the signals was *heeded*. SIGINT, SIGTERM or
  /// SIGHUP that no watch heeded is raised again once all watches are
  /// destroyed: it came too late for the run.
  void answer(interrupt heeded) noexcept;

private:
  std::uint64_t preempting_ = 0; // one bit per signal
  unique_fd fd_;
};

/// "SIGTERM", or "signal 40" if it has no name.
std::string signal_text(int signal);

/// Ignores signals that are meant for the driver: SIGTERM to all
/// processes of a run (systemd, Slurm) must not kill ranks before their
/// last checkpoint. Executed programs and forked processes get the
/// defaults.
void leave_signals_to_the_driver() noexcept;

/// In a handler of *signal*: does what the signal does by default as soon as
/// the handler returns. For processes that have inherited the handler.
void take_default_action(int signal) noexcept;

} // namespace troupe::internal
