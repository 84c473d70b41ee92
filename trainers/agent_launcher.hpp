#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "troupe/actors/protocol/interfaces.hpp"
#include "troupe/actors/worker_group_args.hpp"
#include "troupe/runtime/hosts/host_plan.hpp"

namespace troupe::internal {

/// Launches the agents of a run on the hosts of a plan: the same program, by
/// ssh or `srun`, with the ticket on standard input.
class agent_launcher {
public:
  /// Prepares the first launch of each host but the driver's own: its agent
  /// starts now, and waits for the ticket, which `host_launcher::launch` brings
  /// once the group wants it. The group learns nothing of this. `ec::spawn` if
  /// there is no thread or descriptor for it.
  static expected<std::shared_ptr<agent_launcher>> start(host_plan hosts);

  agent_launcher(const agent_launcher&) = delete;
  agent_launcher& operator=(const agent_launcher&) = delete;

  ~agent_launcher();

  /// From now on agents get *ticket*, and *group* learns about launches.
  void open(worker_group_actor group, std::string ticket);

  /// Ends all launchers, and waits for that, which takes six seconds at most.
  void close();

  /// For the group; does nothing once this is closed.
  static agent_launches functions_of(const std::shared_ptr<agent_launcher>& x);

private:
  struct parts;

  explicit agent_launcher(std::unique_ptr<parts> x);

  void launch(std::size_t host, std::uint64_t launch);

  std::unique_ptr<parts> parts_;
};

} // namespace troupe::internal
