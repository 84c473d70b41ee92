#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <caf/actor_system.hpp>

#include "troupe/actors/callback_chain.hpp"
#include "troupe/actors/worker_group_args.hpp"
#include "troupe/runtime/store/attempt_start.hpp"
#include "troupe/trainers/run_parts.hpp"

namespace troupe::internal {

class host_roster;
class spawner_connection;
struct driver_args;
struct driver_start;
struct resource_share;

struct run_callbacks {
  std::shared_ptr<callback_list> classes;
  std::vector<named_callback_actor> actors;
  std::shared_ptr<callback_cursor> cursor; ///< Unset: there are no callbacks.
};

/// Makes a run for `make_run` in three steps. Nothing runs before the last one
/// but agents that wait for their ticket: they end if it does not come to that.
class run_starter {
public:
  run_starter(run_request request, caf::actor_system& system,
              run_surroundings around)
    : request_(std::move(request)), system_(system), around_(std::move(around)),
      here_(runs_here(request_.scaling)) {
    request_.loop.hooks = request_.run.rank_hooks;
  }

  /// Finds the run's requirements, then takes its folder, prepares the launches
  /// of agents, and recovers the run.
  expected<void> open();

  /// Places its ranks, and reserves the first attempt.
  expected<void> plan();

  /// Starts the actors.
  std::unique_ptr<run_parts> spawn();

  /// One of the first two steps failed for *reason*: returns what to say. If
  /// the run was given up, its folder says so from now on.
  error not_begun(error reason);

private:
  // -- before anything runs (run_starter.cpp)
  expected<void> find_spawner();
  expected<void> prepare_agents();
  expected<void> check_trackers() const;
  expected<void> check_ticket() const;
  /// Takes what leads agents to the run that come by themselves.
  expected<void> take_ways();
  expected<void> start_trackers();
  /// Takes GPUs and cores of this host for the run.
  void take_resources();
  /// Says if other runs of this process use some of these, too.
  void note_sharing() const;
  void note_unused_hosts() const;
  /// Of this host, for the ranks of others; empty: their agents will say.
  expected<std::string> find_address() const;
  /// Shows *text* to people.
  std::function<void(std::string)> note() const {
    return [monitor = run_->monitor](std::string text) {
      monitor->note(std::move(text));
    };
  }

  // -- the actors (run_starter_spawn.cpp). On the network thread: on the
  // scheduler, an actor of the user that waits there for the end of the run,
  // such as one that owns its handle, would keep it from ending.
  /// The run's hosts; agents may join if it has a door.
  host_roster make_roster();
  std::shared_ptr<rank_launcher> make_launcher();
  worker_group_args args_of_group();
  run_observer_actor spawn_callbacks();
  driver_args args_of_driver();
  driver_start start_of_driver();
  /// Tells the driver of a store that is lost.
  void report_loss() const;
  /// Passes what `troupe stop` asks for on to the driver.
  void pass_end_requests_on() const;

  run_request request_; // its run is resolved
  caf::actor_system& system_;
  run_surroundings around_;
  const bool here_;
  spawner_connection* spawner_ = nullptr;
  std::unique_ptr<run_parts> run_ = std::make_unique<run_parts>();
  run_callbacks callbacks_;
  group_plan plan_;
  std::shared_ptr<const resource_share> resources_;
  std::string own_address_;
  attempt_start first_;
};

/// Makes a run: its store, its trackers and its actors, which wait for
/// `start_run`.
expected<std::unique_ptr<run_parts>> make_run(run_request request,
                                              caf::actor_system& system,
                                              run_surroundings around);

} // namespace troupe::internal
