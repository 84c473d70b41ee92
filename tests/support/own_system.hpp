#pragma once

#include <caf/actor_system.hpp>

#include "troupe/actors/protocol/register_messages.hpp"
#include "troupe/actors/transport/system_config.hpp"

namespace troupe::internal::test {

/// What an actor system needs before it is made.
struct own_settings {
  struct registration {
    registration() { register_messages(); }
  } messages;
  system_config settings;
};

/// An actor system with Troupe's messages and settings, as a service makes it.
class own_system : private own_settings, public caf::actor_system {
public:
  own_system() : caf::actor_system(settings) {}
};

} // namespace troupe::internal::test
