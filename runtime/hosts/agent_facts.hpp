#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace troupe::internal {

/// What the agent of a host says about itself and its host.
struct agent_facts {
  std::uint64_t incarnation = 0; ///< Random: names this process.
  std::string host;              ///< The host's own name.
  /// Numbers: the two ends of the agent's connection to the driver.
  std::string address;
  std::string driver_address;
  int cores = 0;                   ///< That the agent may use.
  std::uint64_t memory = 0;        ///< In bytes.
  std::uint64_t shared_memory = 0; ///< Size of /dev/shm in bytes.
  std::string build_id;            ///< Of its program.
  std::string version;             ///< Of Troupe.
  std::int64_t clock_ms = 0;       ///< Milliseconds since 1970.
  std::int32_t pid = 0;
  /// As the driver calls the launch that started it; 0: it came by itself.
  std::uint64_t launch = 0;
};

template <class Inspector>
bool inspect(Inspector& f, agent_facts& x) {
  return f.object(x).fields(
    f.field("incarnation", x.incarnation), f.field("host", x.host),
    f.field("address", x.address), f.field("driver_address", x.driver_address),
    f.field("cores", x.cores), f.field("memory", x.memory),
    f.field("shared_memory", x.shared_memory), f.field("build_id", x.build_id),
    f.field("version", x.version), f.field("clock_ms", x.clock_ms),
    f.field("pid", x.pid), f.field("launch", x.launch));
}

/// *x* as in `clock_ms`.
std::int64_t clock_in_ms(std::chrono::system_clock::time_point x);

/// The facts about this process, with a new incarnation.
agent_facts own_agent_facts();

} // namespace troupe::internal
