#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "troupe/actors/protocol/interfaces.hpp"
#include "troupe/runtime/run/run_board.hpp"
#include "troupe/runtime/store/result.hpp"
#include "troupe/runtime/values/run_status.hpp"
#include "troupe/trainers/run_request.hpp"

namespace troupe {

class lent_thread;
class network_thread;
struct run_parts;

/// What whoever starts a run has for it beside the request.
struct run_surroundings {
  /// Gets what rank 0 prints, if that is a process.
  std::function<void(std::string_view)> console;
  /// The start fails with `ec::stopped` once this is true. It is asked on the
  /// thread that starts the run, and only until the run has started.
  std::function<bool()> given_up;
  /// Runs the loop of a run without workers; unset: a thread of its own does.
  std::shared_ptr<lent_thread> thread;
  /// Of the actor system, for that thread alone. Unset: it has none.
  network_thread* network = nullptr;
};

/// A run under way in an actor system. Stops the run and waits for it when it
/// goes before the end.
class run_handle {
public:
  /// Starts *request* in *system*, which must load CAF's middleman and outlive
  /// the handle. A run without workers has one rank on a thread of its own.
  static expected<run_handle> start(run_request request,
                                    caf::actor_system& system,
                                    run_surroundings around = {});

  run_handle(run_handle&&) noexcept;
  run_handle& operator=(run_handle&&) noexcept;
  ~run_handle();

  /// How the run is; asks no actor and never waits.
  run_status status() const;

  /// Ends the run in good order; returns at once.
  void stop(std::string reason = "the run was asked to stop");

  /// Says that the run has to go: ranks get *grace*, unset: as the config says,
  /// to leave their loops with a last checkpoint, and the run ends as
  /// `preempted`. Returns at once.
  void preempt(std::optional<std::chrono::milliseconds> grace = std::nullopt,
               std::string reason = "the run was preempted");

  /// Waits for the end, for what the ranks printed and for trackers.
  /// Then the run's name is free: a run that did not finish can be started
  /// again. May be called again, and by several threads at once.
  ///
  /// *hurried* is asked on this thread, about ten times a second while trackers
  /// are at work. Once it is true they are given up after a moment: what they
  /// have not taken is in `result::unsent`.
  result wait(const std::function<bool()>& hurried = {}) noexcept;

  /// What the driver shows; for those who would rather be told than ask.
  run_board& board();

  /// The DRIVER actor, to be composed with actors of the caller's own.
  const driver_actor& driver() const;

  /// Ranks' threads that did not leave their loops, and the thread of callbacks
  /// that did not come back. They use the actor system: it must not end while
  /// there are any.
  int threads_left_behind() const;

private:
  explicit run_handle(std::unique_ptr<run_parts> x);

  std::unique_ptr<run_parts> parts_;
};

} // namespace troupe
