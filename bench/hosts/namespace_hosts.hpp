#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "bench/workplace.hpp"

namespace troupe::internal::bench {

/// This program's file.
std::string own_program();

/// When the journal of the run in *folder* got its last event of *kind*, as
/// `now`. Throws if it has none.
double time_of_event(const std::string& folder, std::string_view kind);

/// Hosts h1, h2, ... that are namespaces of this machine, made by hosts.sh.
/// Their files and their monotonic clock are those of the machine.
class namespace_hosts {
public:
  /// Throws `skipped` if there can be none here. With *slurm*, they are a
  /// cluster of Slurm.
  namespace_hosts(workplace& place, int count, bool slurm = false);

  /// Kills what was started; nothing of the hosts is left. If an exception ends
  /// the measurement, shows what its agents have printed.
  ~namespace_hosts();

  namespace_hosts(const namespace_hosts&) = delete;
  namespace_hosts& operator=(const namespace_hosts&) = delete;

  /// Starts *command* on host number *host*, from 1.
  pid_t start(int host, std::vector<std::string> command);

  /// Starts the agent of a run there whose ticket will be in the file *ticket*.
  pid_t start_agent(int host, const std::string& ticket);

  /// Waits for the end of *process*. Throws if it failed.
  void await(pid_t process);

  /// Calls the tool that made the hosts. Throws if it fails.
  void call(const std::string& arguments) const;

private:
  pid_t start(int host, std::vector<std::string> command, int standard_error);
  void show_logs() const;

  workplace& place_;
  std::string tool_;
  std::string hosts_tool_;
  std::vector<pid_t> started_;
  std::vector<std::pair<int, std::string>> logs_; ///< By host, of its agents.
};

} // namespace troupe::internal::bench
