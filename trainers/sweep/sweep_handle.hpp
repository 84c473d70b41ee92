#pragma once

#include <string>

#include "troupe/actors/protocol/sweep_messages.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/process/forked_process.hpp"
#include "troupe/runtime/sweep/sweep_result.hpp"
#include "troupe/trainers/sweep/sweep.hpp"

namespace troupe {

namespace internal {
struct sweep_parts;
} // namespace internal

/// A sweep in an actor system: a thread of the handle decides, its trials are
/// runs in that system. The destructor aborts the sweep and waits for it, as
/// that of a `run_handle` does. In a forked process the sweep does not exist:
/// the destructor, `abort`, `preempt` and `follow` do nothing, `status` is
/// empty, `wait` returns an error; the rest may not be called.
class sweep_handle {
public:
  /// Starts a sweep in *system*, which must load CAF's middleman and outlive
  /// the handle. The error is that of `sweep_result`, if no trial could begin.
  static expected<sweep_handle> start(const internal::run_request& request,
                                      const search_space& space,
                                      const sweep_options& options,
                                      caf::actor_system& system);

  sweep_handle(sweep_handle&&) noexcept;
  sweep_handle& operator=(sweep_handle&&) noexcept;
  ~sweep_handle();

  /// How the sweep was when its thread last waited: at most 0.2 s ago, longer
  /// while the searcher or `prepare` works. Never waits itself.
  sweep_status status() const;

  /// From now on *who* gets `trial_ended` and, last, `sweep_ended`: at once if
  /// the sweep is over.
  void follow(sweep_observer_actor who);

  /// Aborts the trials under way and begins no more; the next start resumes
  /// them. Returns at once.
  void abort(std::string reason = "the sweep was aborted");

  /// The same, but trials have the `stop_grace` of their config for a last
  /// checkpoint.
  void preempt(std::string reason = "the sweep was preempted");

  /// Waits for the end. Then the sweep's name is free: one that did not come to
  /// its end can be started again. May be called repeatedly, and by several
  /// threads at once.
  sweep_result wait() noexcept;

  /// As `run_handle::threads_left_behind`, of all trials; 0 before the end.
  int threads_left_behind() const;

private:
  explicit sweep_handle(internal::owned_ptr<internal::sweep_parts> x);

  bool is_here() const noexcept { return parts_.get_deleter().owner.is_here(); }

  internal::owned_ptr<internal::sweep_parts> parts_;
};

} // namespace troupe
