#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include <caf/actor_system.hpp>
#include <caf/io/doorman.hpp>

#include "troupe/runtime/error.hpp"

namespace troupe {

/// An actor behind a door of ours in CAF's broker. Where CAF's published actors
/// have their port, ours have a slot: a privileged port number, so that it
/// never meets a TCP port of an actor in the same system.
///
/// Closes the door when it goes; connections that exist stay. Must go before
/// its actor system.
class publication {
public:
  using doorman_maker = std::function<caf::io::doorman_ptr(std::uint16_t slot)>;

  /// Puts *whom*, whose signatures are *interface*, behind what *make* makes;
  /// `ec::conflict` if the process has no slot left.
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
};

} // namespace troupe
