#pragma once

#include <caf/blocking_actor.hpp>
#include <caf/scoped_execution_unit.hpp>

#include "troupe/actors/transport/network_thread.hpp"

namespace troupe {

/// A mailbox for the calling thread, like `caf::scoped_actor`, which runs the
/// event loop itself while it waits without a limit.
class network_waiter {
public:
  /// Without a *network* the thread sleeps while it waits.
  network_waiter(caf::actor_system& system, network_thread* network);

  network_waiter(const network_waiter&) = delete;

  network_waiter& operator=(const network_waiter&) = delete;

  ~network_waiter();

  caf::blocking_actor* operator->() const noexcept { return self_; }
  caf::blocking_actor& operator*() const noexcept { return *self_; }

private:
  caf::scoped_execution_unit context_;
  caf::actor handle_; // keeps it alive
  caf::blocking_actor* self_;
};

} // namespace troupe
