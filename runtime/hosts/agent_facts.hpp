#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "troupe/runtime/each_field.hpp"
#include "troupe/runtime/error.hpp"

namespace troupe::internal {

/// What the agent of a host says about itself and its host.
struct agent_facts {
  std::uint64_t incarnation = 0; ///< Random: names this process.
  std::string host;              ///< The host's own name.
  std::string boot;              ///< Of the host's kernel; empty: not known.
  /// Numbers: the two ends of the agent's connection to the driver.
  std::string address;
  std::string driver_address;
  int cores = 0;        ///< That the agent may use.
  int gpus = 0;         ///< That CUDA shows the agent.
  std::string build_id; ///< Of its program.
  /// Build ids of its libraries of CAF and LibTorch, by the names of the files.
  std::map<std::string, std::string> libraries;
  std::string version;       ///< Of Troupe.
  std::int64_t clock_ms = 0; ///< Milliseconds since 1970.
  /// As the driver calls the launch that started it; 0: it came by itself.
  std::uint64_t launch = 0;
};

TROUPE_INSPECT(agent_facts, incarnation, host, boot, address, driver_address,
               cores, gpus, build_id, libraries, version, clock_ms, launch)

/// Whether an agent that cannot have a place because of *x* asks again: all are
/// taken, its GPUs or the storage's latest attempt may show late, or the
/// storage fails.
inline bool asks_again(const error& x) noexcept {
  return x.code == ec::conflict || x.code == ec::storage;
}

/// The facts about this process, with a new incarnation.
agent_facts own_agent_facts();

} // namespace troupe::internal
