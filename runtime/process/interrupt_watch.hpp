#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <vector>

#include "troupe/runtime/process/descriptor.hpp"

namespace troupe {

/// What signals ask of a run.
enum class interrupt {
  none,
  preempt, ///< The run has to go, and gets time for a last checkpoint.
  stop,    ///< Someone wants it to end.
};

/// Counts how often someone has asked. Senders repeat themselves within moments
/// (`timeout` and `sudo` pass on what the whole group got, systemd sends SIGHUP
/// behind SIGTERM), which is asking once. Fit for signal handlers.
class signal_count {
public:
  /// Longer than such echoes take, shorter than someone who presses Ctrl-C
  /// again and again.
  static constexpr std::int64_t echo_ns = 300'000'000;

  /// A signal has come at *now_ns*, by a clock that no one sets back; how many
  /// have counted so far. Those within `echo_ns` of the last one that counted
  /// do not.
  int add(std::int64_t now_ns) noexcept;

  int count() const noexcept { return count_; }

  void reset() noexcept;

private:
  static constexpr std::int64_t never =
    std::numeric_limits<std::int64_t>::min() / 2;

  std::atomic<int> count_{0};
  std::atomic<std::int64_t> last_ns_{never};
};

/// While it lives, SIGINT, SIGTERM, SIGHUP and the signals it was made with ask
/// for an end in good order instead of ending the process: the first makes
/// `fd()` readable, others may ask for more, the third that `signal_count`
/// counts leaves at once with exit code 128 + signal.
///
/// Processes that are forked off meanwhile heed signals as by default.
///
/// A signal for which the program has a handler of its own, or which it
/// ignores, stays the program's. Several watches may live at once, in any
/// order: all see the same signals, and the last one restores what was.
/// Made on another thread than the main one while no watch lives, it watches
/// nothing: signals are then the business of the service that started the run.
class interrupt_watch {
public:
  /// The signals of *preempting* announce that the run has to go; all others
  /// stop it.
  explicit interrupt_watch(const std::vector<int>& preempting = {});
  interrupt_watch(const interrupt_watch&) = delete;
  interrupt_watch& operator=(const interrupt_watch&) = delete;
  ~interrupt_watch();

  /// Becomes readable, and stays so, with the first signal; -1 if nothing is
  /// watched. Not to be read from.
  int fd() const noexcept { return fd_.get(); }

  /// What the signals so far ask for: a stop counts more than a preemption.
  interrupt asked() const noexcept;

  /// The signal behind `asked()`, of several the first; 0: none.
  int asking_signal() const noexcept;

  /// How many signals have counted since the first of the living watches was
  /// made.
  int count() const noexcept;

  /// Says how much of what the signals ask for was *heeded*. SIGINT, SIGTERM or
  /// SIGHUP that no watch heeded is raised again once all watches are gone:
  /// what comes too late is the program's.
  void answer(interrupt heeded) noexcept;

private:
  std::uint64_t preempting_ = 0; // one bit per signal
  unique_fd fd_;
};

/// Lets signals pass that are meant for the driver: whoever ends a run by
/// SIGTERM to all its processes (systemd, Slurm) must not kill ranks before
/// their last checkpoint. Programs that this process executes and processes
/// that it forks off get the defaults.
void leave_signals_to_the_driver() noexcept;

/// In a handler of *signal*: does what the signal does by default as soon as
/// the handler returns. For processes that have inherited the handler.
void take_default_action(int signal) noexcept;

} // namespace troupe
