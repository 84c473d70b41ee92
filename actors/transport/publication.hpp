#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <caf/io/doorman.hpp>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/process/forked_process.hpp"

namespace troupe::internal {

/// Receives one sentence about a refused peer or connection, on the network
/// thread. May be empty.
using refusal_handler = std::function<void(const std::string&)>;

/// CAF's actor that owns all connections of *system*.
caf::actor broker_of(caf::actor_system& system);

/// An actor at one of our endpoints in CAF's broker. Instead of the port of
/// CAF's published actors it has a slot: a privileged port number, so that it
/// never collides with a TCP port of an actor in the same system.
///
/// Its destructor closes the endpoint; existing connections stay. Destroy it
/// before its actor system. In a process forked from the one that made it, it
/// does nothing: the network thread is not there, but its pipe is.
class publication {
public:
  using doorman_maker = std::function<caf::io::doorman_ptr(std::uint16_t slot)>;

  /// Publishes *whom*, whose signatures are *interface*, at the endpoint that
  /// *make* creates; `ec::conflict` if the process has no slot left.
  static expected<publication> begin(caf::actor_system& system,
                                     caf::strong_actor_ptr whom,
                                     std::set<std::string> interface,
                                     const doorman_maker& make);

  publication(publication&& other) noexcept;
  publication& operator=(publication&& other) noexcept;
  ~publication();

private:
  publication(caf::actor_system& system, std::uint16_t slot)
    : system_(&system), slot_(slot) {}

  void end() noexcept;

  caf::actor_system* system_; // null: moved from
  std::uint16_t slot_;
  owner_process owner_;
};

} // namespace troupe::internal
