#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "troupe/actors/protocol/control_messages.hpp"
#include "troupe/runtime/process/forked_process.hpp"
#include "troupe/runtime/store/result.hpp"
#include "troupe/runtime/values/run_status.hpp"

namespace troupe {

namespace internal {

class run_access;
struct run_parts;

} // namespace internal

/// A run in an actor system, which `start` of a trainer returns. Its destructor
/// aborts the run and waits for it. In a forked process the run does not exist:
/// the destructor and what ends the run do nothing, `wait` returns an error and
/// `status` says `errored`; the rest may not be called.
class run_handle {
public:
  run_handle(run_handle&&) noexcept;
  run_handle& operator=(run_handle&&) noexcept;
  ~run_handle();

  /// The run's status; involves no actor and never waits.
  run_status status() const;

  /// Ends the run as `finished` after the next report of its ranks, as
  /// `train_context::request_stop` does: `result::stop_reason` has *reason*.
  /// Returns at once.
  void finish(std::string reason = "the run was asked to finish");

  /// Preempts the run: ranks have *grace* (unset: the config's) to leave their
  /// loops with a last checkpoint, and the run ends as `preempted`. Returns at
  /// once.
  void preempt(std::string reason = "the run was preempted",
               std::optional<std::chrono::milliseconds> grace = std::nullopt);

  /// Ends the run as `aborted`, with time for its ranks to leave; returns at
  /// once.
  void abort(std::string reason = "the run was aborted");

  /// Waits for the end, for the ranks' output and for trackers, and until
  /// agents of other hosts have left: for 2 s at most, and then up to 6 s for
  /// the `ssh` or `srun` that launched them. Then the run's name and its port
  /// are free: an unfinished run can be started again. May be called
  /// repeatedly, and by several threads at once.
  ///
  /// Calls *hurried* on this thread, about ten times a second while trackers
  /// run. Once it returns true, they are given up after a moment:
  /// `result::unsent` says what they have not sent.
  result wait(const std::function<bool()>& hurried = {}) noexcept;

  /// From now on *who* gets `run_closed` once the run has ended and `wait`
  /// would return at once: now, if that is so. Once for each call; the message
  /// comes from a thread of the handle. An actor may let its handle go then, or
  /// end with it. `ec::spawn`: there is no thread.
  expected<void> when_closed(run_closed_actor who);

  /// The run for the caller's own actors: they ask, end and follow it. For
  /// those of other processes of this user, `publish` it.
  run_control_actor control() const;

  /// Ranks' threads that did not leave their loops, and the thread of callbacks
  /// that did not return. They use the actor system, which must not end while
  /// there are any.
  int threads_left_behind() const;

private:
  friend class internal::run_access;

  explicit run_handle(std::unique_ptr<internal::run_parts> x);

  std::unique_ptr<internal::run_parts> parts_;
  internal::owner_process owner_;
};

} // namespace troupe
