#pragma once

#include <string>

#include "troupe/runtime/error.hpp"
#include "troupe/trainers/node_agent.hpp"

namespace troupe::internal {

// What `mpirun` has started on each host: rank 0 is the driver, the first rank
// of each other host its agent. Each run of the driver publishes a ticket.

/// In the driver: connects to the server of mpirun. Agents end when this
/// process does. Fails as `pmix_session::open`.
expected<void> lead_mpi();

/// In the driver: how many hosts mpirun has, this one included.
expected<int> mpi_host_count();

/// In the driver: has the agents join the run of this ticket.
expected<void> publish_mpi_ticket(const std::string& text);

/// In a process that is neither: mpirun demands that all of its processes
/// connect to its server if one does.
expected<void> leave_mpi();

/// In an agent: takes part in all runs of the driver, until that ends. Returns
/// the exit code of the process.
agent_exit serve_mpi();

} // namespace troupe::internal
