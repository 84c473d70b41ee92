#include "troupe/actors/compat/event_loop.hpp"

namespace troupe::internal {

#if CAF_VERSION >= 10000

void shared_loop::prepare(caf::actor_system_config&) {}

// CAF 1.x always runs its event loop on a thread of its own. That thread is
// parked inside a task of the loop. The task is posted from another one, so
// that it runs between two rounds of the loop: no event is being handled then.
shared_loop::shared_loop(caf::actor_system& system)
  : loop_(system.middleman().backend()), owner_(loop_.thread_id()) {
  std::promise<void> parked;
  loop_.post([this, &parked] {
    loop_.post([this, &parked] {
      auto end = given_back_.get_future();
      parked.set_value();
      end.wait();
    });
  });
  parked.get_future().wait();
  // Messages of all threads go through the event loop's pipe: CAF assumes that
  // the same thread always runs the loop.
  loop_.thread_id({});
}

shared_loop::~shared_loop() {
  loop_.thread_id(owner_);
  given_back_.set_value();
}

#else

void shared_loop::prepare(caf::actor_system_config& config) {
  config.set("caf.middleman.manual-multiplexing", true);
}

shared_loop::shared_loop(caf::actor_system& system)
  : loop_(system.middleman().backend()) {
  // Messages of all threads go through the event loop's pipe: CAF assumes that
  // the thread which made the system always runs the loop.
  loop_.thread_id({});
}

shared_loop::~shared_loop() = default;

#endif

} // namespace troupe::internal
