#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

namespace troupe::test {

/// Runs a counting loop without end in *storage*, as a program of its own that
/// a test kills. Never returns a result that matters.
int be_victim(const std::string& storage);

/// This program as a victim, in a process group of its own.
class victim {
public:
  explicit victim(const std::string& storage);
  victim(const victim&) = delete;
  ~victim();

  pid_t pid() const noexcept { return pid_; }

  void kill(int signal);

  /// Waits for its end; returns the status of `waitpid`.
  int wait();

private:
  pid_t pid_ = -1;
};

/// Descendants of *root*: its ranks and its spawner.
std::vector<pid_t> descendants(pid_t root);

/// Waits until *pid* is gone, at most *seconds*; whether it is.
bool gone_within(pid_t pid, int seconds);

} // namespace troupe::test
