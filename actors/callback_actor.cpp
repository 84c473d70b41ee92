#include "troupe/actors/callback_actor.hpp"

#include "troupe/actors/transport/connect.hpp"

namespace troupe {

using namespace internal;

namespace internal {

std::shared_ptr<const callback_actor>
callback_actors::make(std::string name, finder find, caf::actor_system* home) {
  return std::shared_ptr<const callback_actor>{
    new callback_actor{std::move(name), std::move(find), home}};
}

expected<callback_actors::callee>
callback_actors::find(const callback_actor& x, caf::actor_system& system) {
  return x.find_(system);
}

caf::actor_system* callback_actors::home(const callback_actor& x) noexcept {
  return x.home_;
}

} // namespace internal

namespace {

std::shared_ptr<const callback_actor>
local_callback(user_callback_actor actor, std::string name, bool observes) {
  auto home = actor ? &actor.home_system() : nullptr;
  auto find =
    [actor = std::move(actor), home,
     observes](caf::actor_system& system) -> expected<callback_actors::callee> {
    if (!actor)
      return failure(ec::invalid_config, "the handle names no actor");
    if (home != &system)
      return failure(
        ec::invalid_config,
        "it belongs to another actor system than the run; start the "
        "run in that system, or publish the actor and name its "
        "socket by callback_at");
    return callback_actors::callee{actor, observes};
  };
  return callback_actors::make(std::move(name), std::move(find), home);
}

} // namespace

std::shared_ptr<const callback_actor> as_callback(user_callback_actor actor,
                                                  std::string name) {
  return local_callback(std::move(actor), std::move(name), false);
}

std::shared_ptr<const callback_actor> as_callback(run_observer_actor actor,
                                                  std::string name) {
  return local_callback(std::move(actor), std::move(name), true);
}

std::shared_ptr<const callback_actor> callback_at(fs::path socket,
                                                  std::string name) {
  auto find =
    [socket = std::move(socket)](
      caf::actor_system& system) -> expected<callback_actors::callee> {
    TROUPE_TRY(auto found,
               connect_actor(system,
                             system.message_types<user_callback_actor>(),
                             socket, connect_timeout));
    auto observes = system.assignable(
      found.interface, system.message_types<run_observer_actor>());
    return callback_actors::callee{
      handle_of<user_callback_actor>(std::move(found)), observes};
  };
  return callback_actors::make(std::move(name), std::move(find), nullptr);
}

} // namespace troupe
