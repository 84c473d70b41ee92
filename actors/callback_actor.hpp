#pragma once

#include <functional>
#include <memory>
#include <string>

#include <caf/actor_system.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "troupe/actors/protocol/type_ids.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe {

class callback_actor;

namespace internal {

/// Makes callback actors, and finds the actor that one stands for.
struct callback_actors {
  /// The actor, as a run calls it.
  struct callee {
    user_callback_actor actor;
    bool observes = false; ///< It is a `run_observer_actor`.
  };

  /// Returns the actor for a run in the given system.
  using finder = std::function<expected<callee>(caf::actor_system&)>;

  static std::shared_ptr<const callback_actor>
  make(std::string name, finder find, caf::actor_system* home);

  /// The actor of *x* for a run in *system*. May wait for a connection.
  static expected<callee> find(const callback_actor& x,
                               caf::actor_system& system);

  /// The only actor system whose runs can use *x*; nullptr: any.
  static caf::actor_system* home(const callback_actor& x) noexcept;
};

} // namespace internal

/// A user's own actor as a callback of runs: an entry of
/// `run_config::callback_actors`.
class callback_actor {
public:
  /// Its name in errors and `run_status::callbacks`.
  const std::string& name() const noexcept { return name_; }

private:
  friend struct internal::callback_actors;

  callback_actor(std::string name, internal::callback_actors::finder find,
                 caf::actor_system* home)
    : name_(std::move(name)), find_(std::move(find)), home_(home) {}

  std::string name_;
  internal::callback_actors::finder find_;
  caf::actor_system* home_;
};

/// *actor*, which is in the actor system of the run or connected to it by any
/// transport. `fit()` runs in the system of such an actor instead of its own;
/// that system must load CAF's middleman and outlive the run.
std::shared_ptr<const callback_actor>
as_callback(user_callback_actor actor, std::string name = "callback actor");

/// The same for one that also sees states of the run and of its ranks.
std::shared_ptr<const callback_actor>
as_callback(run_observer_actor actor, std::string name = "callback actor");

/// The actor that a process of this user has published at *socket* (see
/// `publish`); the run connects to it when it starts. A `run_observer_actor`
/// there sees states of the run and of its ranks, too.
std::shared_ptr<const callback_actor>
callback_at(fs::path socket, std::string name = "callback actor");

} // namespace troupe
