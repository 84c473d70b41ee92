#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/hosts/environment_map.hpp"
#include "troupe/runtime/hosts/host_list.hpp"

namespace troupe::internal {

/// What a process is to be in the run.
enum class launch_role : std::uint8_t {
  driver,     ///< Owns the run; its host also has ranks if it is in the list.
  agent,      ///< Runs the ranks of its host for a driver elsewhere.
  extra_task, ///< Nothing: exits with 0 after a line that says why.
};

/// Who gives the hosts, and starts the agents there.
enum class launch_engine : std::uint8_t {
  none,    ///< This host alone.
  tickets, ///< Agents are started by others, with a ticket: pods, or by hand.
  ssh,
  slurm,
  mpi, ///< Open MPI, or a server of PMIx: it has started one task per host.
};

/// What the user gives the program, and what it knows about its host.
struct launch_options {
  std::string hosts;       ///< A list, or the path of a hosts file, or empty.
  bool node_agent = false; ///< `--node-agent`: it serves a driver elsewhere.
  std::vector<std::string> own_names; ///< Of this host: names and addresses.
};

/// What started this program, and what follows from it.
struct launch_environment {
  launch_role role = launch_role::driver;
  launch_engine engine = launch_engine::none;

  /// The hosts of the run, in the order of their numbers; empty if they come by
  /// themselves (`tickets`, `mpi`) and for this host alone. With Slurm, slots
  /// are the tasks of a node, and an agent is alone in its step: the driver
  /// knows it by the name here.
  std::vector<host_entry> hosts;

  /// This host's index in *hosts*, or the index of this pod. Unset: this host
  /// is not one of them, or it is not known.
  std::optional<std::size_t> host_index;

  /// For `tickets`: how many agents come by themselves (`TROUPE_AGENTS`); 0:
  /// not known.
  int agents = 0;

  /// The same: the file with the ticket, or its folder.
  std::string ticket_path;

  /// The same: the ticket is valid for all runs of the driver's program, and an
  /// agent serves one after the other. Kubernetes, for one, starts no pod again
  /// that has succeeded.
  bool has_lasting_ticket = false;

  /// This host is alone although something else was found: people should know.
  bool is_odd = false;

  /// One line for the user: what was found, and why.
  std::string found;
};

/// Where a ticket is looked for unless `TROUPE_TICKET` names another file or
/// folder.
inline constexpr std::string_view default_ticket_path = "/run/troupe";

/// Finds out what started this program. The first of these decides:
/// `TROUPE_DRIVER`, the hosts of *options*, a job of Slurm, Open MPI or PMIx, a
/// pod of an Indexed Job; else it is this host alone, and the line names what
/// tells of another launcher: torchrun, PBS, LSF.
///
/// Reads no file but a hosts file or that of PBS, and nothing of this process.
/// `ec::invalid_config` if the variables contradict each other, or if this is
/// one of several processes that would each train alone; the sentence names
/// them.
expected<launch_environment>
find_launch_environment(const environment_map& variables,
                        const launch_options& options);

/// Part of the above, for a driver whose agents come by themselves:
/// `ec::invalid_config` if this is one of several processes that an mpiexec
/// without PMIx has started. Each would be a driver of the same run.
expected<void> expect_pmix(const environment_map& variables);

/// Where a driver listens.
struct driver_address {
  std::string host; ///< Its name or address, without brackets.
  std::uint16_t port = 0;
};

/// Reads HOST:PORT or [ADDRESS]:PORT, the value of `TROUPE_DRIVER`.
expected<driver_address> parse_driver_address(std::string_view text);

} // namespace troupe::internal
