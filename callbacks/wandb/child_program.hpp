#pragma once

#include <map>
#include <stop_token>
#include <string>
#include <vector>

#include <sys/types.h>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/process/unique_fd.hpp"
#include "troupe/runtime/run/wait_time.hpp"

namespace troupe {

/// The full path of program *name*, which is looked for in PATH unless it has a
/// slash; empty: there is none that can be run.
fs::path find_program(const std::string& name);

/// Another program, in a session of its own, which ends with this object, and
/// with the thread that started it, together with all its children.
class child_program {
public:
  /// What the program finds different in its environment; an empty value takes
  /// the variable away.
  using changes = std::map<std::string, std::string>;

  /// Starts *command*, whose first word is a full path; what it prints is
  /// appended to *log*. Fails with `ec::spawn` or `ec::storage`.
  static expected<child_program> start(const std::vector<std::string>& command,
                                       const changes& environment,
                                       const fs::path& log);

  child_program(child_program&& other) noexcept;
  child_program& operator=(child_program&& other) noexcept;
  ~child_program() { end(); }

  /// Waits for its end until *time* has come to *limit*, or until *stop* is
  /// asked to. Whether it has ended.
  bool wait(wait_time& time, wait_time::duration limit,
            const std::stop_token& stop);

  /// Ends it now; nothing of it is left then.
  void end() noexcept;

private:
  child_program(pid_t pid, unique_fd process)
    : pid_(pid), process_(std::move(process)) {}

  pid_t pid_ = -1; ///< -1: it has ended.
  unique_fd process_;
};

} // namespace troupe
