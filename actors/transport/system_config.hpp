#pragma once

#include <caf/actor_system_config.hpp>

namespace troupe {

/// How Troupe sets up an actor system: for speed on few cores, and without an
/// open port.
///
/// Reads neither files, environment nor arguments. Add nothing that listens
/// on a port; connect systems with `publish` and `connect` of this folder.
class system_config : public caf::actor_system_config {
public:
  /// *scheduler_threads* run all actors but those of the network thread. One
  /// is enough where no handler waits.
  explicit system_config(std::size_t scheduler_threads = 1);

  /// The system gets a `network_thread` instead of CAF's own.
  system_config& with_own_network_thread();
};

} // namespace troupe
