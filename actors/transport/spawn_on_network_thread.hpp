#pragma once

#include <functional>
#include <utility>

#include <caf/actor_system.hpp>
#include <caf/io/middleman.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_behavior.hpp>
#include <caf/typed_event_based_actor.hpp>

namespace troupe {

/// An actor that runs on the thread that reads and writes all connections.
///
/// A message from another process, its handler and the answer then need no
/// thread switch. In return its handlers must not wait for anything, not even
/// for a disk: they would block all connections of the system.
template <class Base>
class network_thread_actor : public Base {
public:
  using behavior_type = typename Base::behavior_type;
  using init_function = std::function<behavior_type(Base*)>;

  network_thread_actor(caf::actor_config& config, init_function init)
    : Base(config), loop_(config.host), init_(std::move(init)) {}

  using Base::enqueue;

  bool enqueue(caf::mailbox_element_ptr x, caf::execution_unit*) override {
    return Base::enqueue(std::move(x), loop_);
  }

  /// Makes CAF's event loop run this actor itself instead of passing it to the
  /// scheduler.
  caf::resumable::subtype_t subtype() const override {
    return caf::resumable::io_actor;
  }

protected:
  behavior_type make_behavior() override {
    return std::exchange(init_, nullptr)(this);
  }

private:
  caf::execution_unit* loop_;
  init_function init_;
};

/// Spawns *behavior* with *args* as `system.spawn` does, on the network thread.
template <class... Signatures, class Base, class... Parameters, class... Args>
caf::typed_actor<Signatures...> spawn_on_network_thread(
  caf::actor_system& system,
  caf::typed_behavior<Signatures...> (*behavior)(Base*, Parameters...),
  Args&&... args) {
  static_assert(
    std::is_base_of_v<caf::typed_event_based_actor<Signatures...>, Base>);
  caf::actor_config config{&system.middleman().backend()};
  auto init = [behavior, ... xs = Parameters(std::forward<Args>(args))](
                Base* self) mutable {
    return behavior(self, std::move(xs)...);
  };
  return system.spawn_class<network_thread_actor<Base>, caf::no_spawn_options>(
    config, std::move(init));
}

} // namespace troupe
