#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include <sys/types.h>

namespace troupe::internal {

/// The name of threads that poll their sockets all the time: Gloo's. The bytes
/// that they transfer count, their CPU time does not.
inline constexpr const char* polling_thread = "gloo_tcp_loop";

/// The activity of a process, as the kernel sees it.
struct process_vitals {
  /// CPU time of it and its descendants, without their polling threads.
  std::chrono::nanoseconds cpu{0};
  /// Bytes that they have read and written in files and pipes, and over
  /// their open TCP connections, on any thread. Other sockets have no such
  /// count.
  std::uint64_t io_bytes = 0;
  std::uint64_t wake_ups = 0; ///< How often their main threads went to sleep:
                              ///< each packet that one waited for counts.
  bool stopped = false;       ///< By a signal such as SIGSTOP.
  /// A thread, but for polling ones, runs, is ready to run or waits for a
  /// device or a file system, or a debugger holds the process: it need not use
  /// CPU time to be alive. Also if that is unknown: the kernel does not show
  /// what its threads wait for, or it has too many descendants to look at.
  bool busy = false;
};

template <class Inspector>
bool inspect(Inspector& f, process_vitals& x) {
  auto cpu = [&x] { return std::int64_t{x.cpu.count()}; };
  auto set_cpu = [&x](std::int64_t ns) {
    x.cpu = std::chrono::nanoseconds{ns};
    return true;
  };
  return f.object(x).fields(
    f.field("cpu", cpu, set_cpu), f.field("io_bytes", x.io_bytes),
    f.field("wake_ups", x.wake_ups), f.field("stopped", x.stopped),
    f.field("busy", x.busy));
}

/// Whether a signal such as SIGSTOP has stopped process *pid*.
bool is_stopped(pid_t pid);

/// The vitals of process *pid*; nothing if there is no such process.
std::optional<process_vitals> vitals_of(pid_t pid);

} // namespace troupe::internal
