#pragma once

#include <csignal>
#include <string>

#include <sys/types.h>

namespace troupe {

/// Name of the file for the stacks of *rank*, in the folder of logs.
inline std::string stacks_name(int rank) {
  return "rank_" + std::to_string(rank) + ".stacks";
}

/// The signal that asks for stacks. A thread that blocks it is named without
/// its own.
inline int stack_signal() noexcept {
  return SIGRTMIN + 9;
}

/// From now on this process answers `ask_for_stacks` by adding the stacks of
/// all its threads to the file *path*. Call it once; *path* is at most 4 KiB.
///
/// Takes `stack_signal` for itself. A thread in an uninterruptible call is
/// named without its stack.
void answer_with_stacks(const std::string& path);

/// Asks process *pid* for its stacks; returns at once. Returns whether the
/// process answers such requests: any other would die of the signal.
bool ask_for_stacks(pid_t pid);

} // namespace troupe
