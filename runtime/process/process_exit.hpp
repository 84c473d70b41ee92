#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "troupe/runtime/each_field.hpp"
#include "troupe/runtime/inspect_as.hpp"

namespace troupe::internal {

/// How a process ended.
struct process_exit {
  enum class kind : std::uint8_t {
    exited,   ///< Returned or called exit; `code` is its exit code.
    signaled, ///< Killed by a signal; `code` is the signal.
    lost,     ///< Ended with the process that watched it; the code is unknown.
  };

  kind how = kind::exited;
  int code = 0;

  /// The process's own description of its end, e.g. "ended by an exception in
  /// a thread: out of range (std::out_of_range)"; empty if it had no chance
  /// to. Of a killed one, what its spawner supposes.
  std::string termination_message;

  bool operator==(const process_exit&) const = default;
};

template <class Inspector>
bool inspect(Inspector& f, process_exit::kind& x) {
  return inspect_enum(f, x, process_exit::kind::lost);
}

TROUPE_INSPECT(process_exit, how, code, termination_message)

/// Reads *status* as waitpid gives it.
process_exit process_exit_of(int wait_status, std::string termination_message);

/// "exited with code 3", "killed by signal 9 (SIGKILL)", or the
/// termination message if there is one.
std::string to_string(const process_exit& x);

/// Most bytes of a rank's termination message.
inline constexpr std::size_t max_termination_message = 4096;

/// From now on an exception that ends this process through std::terminate is
/// described in *fd* (a memory file) before the process ends as it would have.
void keep_termination_message_in(int fd);

/// Stores *text* as the cause of this process's end; the first call counts.
/// Does nothing outside a rank's own process. Async-signal-safe.
void write_termination_message(std::string_view text) noexcept;

/// What a process left in *fd*.
std::string read_termination_message(int fd);

} // namespace troupe::internal
