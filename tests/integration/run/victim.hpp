#pragma once

#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "troupe/runtime/fs.hpp"

namespace troupe::internal::test {

/// Runs a counting loop without end in *storage*, as a program of its own that
/// a test kills; every rank does *action* at its third report. With
/// `callback_waits` its callback never returns from that report instead. With
/// `leave` they save and leave when they are asked to, with `print` they end
/// after three reports and all print, with `show` the driver shows its
/// progress. With `die_at_second_failure`, inline if `_inline` follows, every
/// attempt fails and the second takes the program along. With
/// `interrupt_at_end`, inline if `_inline` follows, SIGINT comes after the last
/// report, with `interrupt_behind_error` after the ranks have failed. With
/// `tracker_down`, inline if `_inline` follows, they end after three reports,
/// the driver shows its progress, and it has a tracker whose service is not
/// there; with `tracker_down_long` they do not end. With `file_limit` no file
/// of theirs may be larger than 8 KiB. 0: the loop came to its end; 42: the run
/// was stopped; 43: preempted.
int be_victim(const std::string& storage, const std::string& action);

/// This program as a victim, in a process group of its own, without the
/// *closed* ones of the standard descriptors.
class victim {
public:
  /// *console*: stdout and stderr instead of the test's own; -1: these.
  explicit victim(const std::string& storage, const std::string& action = "",
                  const std::vector<int>& closed = {}, int console = -1);
  victim(const victim&) = delete;
  ~victim();

  pid_t pid() const noexcept { return pid_; }

  void kill(int signal);

  /// Waits for its end; returns the status of `waitpid`.
  int wait();

private:
  pid_t pid_ = -1;
};

/// Waits until *there* answers true; looks whenever something changes in
/// *folder*, and now and then.
void wait_for(const fs::path& folder, const std::function<bool()>& there);

/// Waits until the journal of *run* has *lines* lines more than now.
void wait_for_lines(const fs::path& run, std::size_t lines);

/// What *fd* has until *text* is in it, or until its end.
std::string read_until(int fd, const std::string& text);

/// Descendants of *root*: its ranks and its spawner.
std::vector<pid_t> descendants(pid_t root);

/// Ranks of this process and what they started: what is below the spawner.
std::vector<pid_t> processes_of_ranks();

/// Waits until *pid* has ended, at most *seconds*. Returns whether it has.
bool gone_within(pid_t pid, int seconds);

} // namespace troupe::internal::test
