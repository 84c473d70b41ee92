#pragma once

#include <sys/types.h>

#include "troupe/runtime/process/unique_fd.hpp"

namespace troupe {

/// A descriptor that names process *pid* even after its end and becomes
/// readable with it; empty if there is no such process.
unique_fd open_pidfd(pid_t pid) noexcept;

/// Sends *signal* to the process that *process* names; does nothing if it has
/// ended.
void send_signal(const unique_fd& process, int signal) noexcept;

/// Waits until *process* has ended, at most *timeout_ms* (-1: without limit).
/// Returns whether it has.
bool has_ended(const unique_fd& process, int timeout_ms) noexcept;

} // namespace troupe
