#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "troupe/callbacks/wandb/wandb.hpp"
#include "troupe/callbacks/wandb/wandb_files.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/run/callback_watchdog.hpp"

namespace troupe::internal {

/// The full path of program *name*, which is searched for in PATH unless it
/// contains a slash. Empty if no such program can be run.
fs::path find_program(const std::string& name);

/// A program in a session of its own. It ends, with all its children, with this
/// object or with the thread that started it.
class child_program {
public:
  /// How the program's environment differs from ours; an empty value removes
  /// the variable.
  using changes = std::map<std::string, std::string>;

  /// Starts *command*, whose first word is a full path, and appends its output
  /// to *log*. Fails with `ec::spawn` or `ec::storage`.
  static expected<child_program> start(const std::vector<std::string>& command,
                                       const changes& environment,
                                       const fs::path& log);

  child_program(child_program&& other) noexcept;
  child_program& operator=(child_program&& other) noexcept;
  ~child_program() { end(); }

  /// Waits for its end until *time* reaches *limit* or *stop* is requested.
  /// Returns whether it has ended.
  bool wait(wait_time& time, wait_time::duration limit,
            const std::stop_token& stop);

  /// Ends it now, with all its children.
  void end() noexcept;

private:
  child_program(pid_t pid, unique_fd process)
    : pid_(pid), process_(std::move(process)) {}

  pid_t pid_ = -1; ///< -1: ended.
  unique_fd process_;
};

/// Has the user's own W&B client upload a run's folders: while they are
/// written, and at the end those that are left. The client gets credentials
/// only through its environment and its own files.
class wandb_upload {
public:
  explicit wandb_upload(const wandb_options& options) : options_(options) {}

  /// Why nothing can be uploaded here, with the command to run elsewhere. Empty
  /// if uploading is possible.
  std::string obstacle(const std::vector<wandb_fragment>& fragments) const;

  /// Uploads *fragments* while the last of them is still being written. A
  /// failure loses nothing: `finish` uploads what is left.
  void follow(const std::vector<wandb_fragment>& fragments);

  /// Uploads *fragments*, which are complete. If some are left: `ec::timeout`,
  /// `ec::stopped`, or `ec::protocol` with the last line that the client
  /// printed.
  expected<void> finish(const std::vector<wandb_fragment>& fragments,
                        const std::stop_token& stop);

  /// The command that uploads *fragments*.
  static std::string command_for(const std::vector<wandb_fragment>& fragments);

private:
  expected<child_program> start(const std::vector<std::string>& words,
                                const std::vector<wandb_fragment>& fragments);

  wandb_options options_;
  std::optional<child_program> follower_;
};

} // namespace troupe::internal
