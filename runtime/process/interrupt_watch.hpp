#pragma once

#include "troupe/runtime/process/unique_fd.hpp"

namespace troupe {

/// While it lives, SIGINT and SIGTERM ask for an end in good order instead of
/// ending the process: the first makes `fd()` readable, the second changes
/// nothing, the third leaves at once with exit code 128 + signal.
///
/// A signal for which the program has a handler of its own, or which it
/// ignores, stays the program's. Several watches may live at once, in any
/// order: all see the same signals, and the last one restores what was.
/// Made on another thread than the main one while no watch lives, it watches
/// nothing: signals are then the business of the service that started the run.
class interrupt_watch {
public:
  interrupt_watch();
  interrupt_watch(const interrupt_watch&) = delete;
  interrupt_watch& operator=(const interrupt_watch&) = delete;
  ~interrupt_watch();

  /// Becomes readable, and stays so, with the first signal; -1 if nothing is
  /// watched. Not to be read from.
  int fd() const noexcept { return fd_.get(); }

  /// The first signal since the first of the living watches was made, 0 if
  /// there was none.
  int first_signal() const noexcept;

  /// How many signals there were since then.
  int count() const noexcept;

private:
  unique_fd fd_;
};

} // namespace troupe
