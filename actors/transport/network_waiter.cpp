#include "troupe/actors/transport/network_waiter.hpp"

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <caf/io/middleman.hpp>

namespace troupe {

namespace {

class waiting_actor : public caf::blocking_actor {
public:
  waiting_actor(caf::actor_config& config, network_thread* network)
    : blocking_actor(config), network_(network) {}

  void act() override {}

  const char* name() const override { return "network-waiter"; }

  void launch(caf::execution_unit*, bool, bool) override {
    register_at_system();
    initialize();
  }

  using blocking_actor::enqueue;

  /// Actors of other threads than the event loop's may answer, too.
  bool enqueue(caf::mailbox_element_ptr x, caf::execution_unit* from) override {
    auto accepted = blocking_actor::enqueue(std::move(x), from);
    if (network_ && from != &home_system().middleman().backend())
      network_->wake();
    return accepted;
  }

  void await_data() override {
    if (!network_)
      return blocking_actor::await_data();
    network_->drive_until(
      [this] { return !mailbox().queue().empty() || mailbox().fetch_more(); });
  }

private:
  network_thread* network_;
};

} // namespace

network_waiter::network_waiter(caf::actor_system& system,
                               network_thread* network)
  : context_(&system) {
  caf::actor_config config{&context_};
  handle_ =
    system.spawn_impl<waiting_actor, caf::no_spawn_options>(config, network);
  self_ = static_cast<caf::blocking_actor*>(
    caf::actor_cast<caf::abstract_actor*>(handle_));
}

network_waiter::~network_waiter() {
  self_->cleanup(caf::exit_reason::normal, &context_);
}

} // namespace troupe
