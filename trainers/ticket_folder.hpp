#pragma once

#include <string_view>

#include "troupe/actors/door/ticket.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe::internal {

/// What a folder of tickets has: a driver's own, and that of its agents.
inline constexpr const char* driver_ticket_file = "driver.ticket";
inline constexpr const char* agent_ticket_file = "agent.ticket";

/// Makes the tickets of a driver that will listen at *address*, HOST:PORT, and
/// of its agents, for an engine that starts all of them, such as Kubernetes.
/// They are valid for a year, for every start of every run that has them.
///
/// Makes *folder* if there is none. `ec::conflict` if it has tickets already.
expected<void> make_ticket_folder(const fs::path& folder,
                                  std::string_view address);

/// The ticket of *role* in *path*, which is the file or its folder.
expected<ticket> read_ticket_of(const fs::path& path, host_role role);

} // namespace troupe::internal
