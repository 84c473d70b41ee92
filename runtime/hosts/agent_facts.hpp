#pragma once

#include <cstdint>
#include <string>

#include "troupe/runtime/each_field.hpp"

namespace troupe::internal {

/// What the agent of a host says about itself and its host.
struct agent_facts {
  std::uint64_t incarnation = 0; ///< Random: names this process.
  std::string host;              ///< The host's own name.
  /// Numbers: the two ends of the agent's connection to the driver.
  std::string address;
  std::string driver_address;
  int cores = 0;                   ///< That the agent may use.
  int gpus = 0;                    ///< That CUDA shows the agent.
  std::uint64_t memory = 0;        ///< In bytes.
  std::uint64_t shared_memory = 0; ///< Size of /dev/shm in bytes.
  std::string build_id;            ///< Of its program.
  std::string version;             ///< Of Troupe.
  std::int64_t clock_ms = 0;       ///< Milliseconds since 1970.
  std::int32_t pid = 0;
  /// As the driver calls the launch that started it; 0: it came by itself.
  std::uint64_t launch = 0;
};

TROUPE_INSPECT(agent_facts, incarnation, host, address, driver_address, cores,
               gpus, memory, shared_memory, build_id, version, clock_ms, pid,
               launch)

/// The facts about this process, with a new incarnation.
agent_facts own_agent_facts();

} // namespace troupe::internal
