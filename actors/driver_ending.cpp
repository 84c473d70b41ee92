// How the DRIVER ends: in order, step by step, or by a defect.

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/driver.hpp"
#include "troupe/actors/protocol/error_code.hpp"
#include "troupe/runtime/store/result.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

run_status_kind status_of(run_state outcome) {
  switch (outcome) {
    case run_state::finished:
      return run_status_kind::finished;
    case run_state::aborted:
      return run_status_kind::aborted;
    case run_state::preempted:
      return run_status_kind::preempted;
    default:
      return run_status_kind::errored;
  }
}

/// The result of the run in *store*, whose driver died for *reason*. Says less
/// if there is no memory left, which may be the reason.
kept_result result_of_death(const run_store& store,
                            const caf::error& reason) noexcept {
  kept_result x;
  try {
    x = store.current_result();
  } catch (...) {
  }
  x.head.status = run_status_kind::errored;
  try {
    x.head.error = make_run_error(
      {ec::protocol, "the driver of the run died: " + text_of(reason)
                       + "; the next run of this name resumes"});
  } catch (...) {
    x.head.error.emplace().code = ec::protocol;
  }
  return x;
}

} // namespace

void driver_state::end(const error& reason) {
  if (!ending.begin(must_leave()))
    return;
  if (machine->state() == run_state::errored && !machine->failures().empty()
      && reason.code == ec::rank_failed)
    end_reason = error_of(machine->failures());
  else if (reason)
    end_reason = make_run_error(reason);
  for (auto& text : stops.complaints()) {
    args.monitor->note(text);
    note_event(warning_kind, {{"text", text}});
  }
  if (end_reason && must_leave() && !args.is_trial)
    end_reason->message += resume_hint(args.store->description().name);
  take_next_step();
}

run_error driver_state::error_of(std::map<int, rank_failure> ranks) const {
  return make_run_error(std::move(ranks),
                        args.has_logs ? args.store->path() : fs::path{});
}

bool driver_state::must_leave() const {
  return machine->state() == run_state::preempted
         || machine->state() == run_state::aborted;
}

void driver_state::take_next_step() {
  using step = run_ending::step;
  switch (ending.next(callbacks_under_way + last_calls())) {
    case step::wait:
      return;
    case step::store:
      store_end();
      return;
    case step::quit:
      quit();
      return;
  }
}

void driver_state::store_end() {
  auto unsaved = [this](const error& problem) {
    args.monitor->note("this end of the run could not be stored: "
                       + problem.message);
    args.monitor->prepare(unsaved_result(args.store->current_result(),
                                         status_of(machine->state()),
                                         end_reason, problem));
  };
  auto tell = [this] {
    ending.stored();
    if (has_listeners()) // Unpacked only for them.
      call_back(after_run{args.context.id,
                          args.monitor->prepared().unpacked_if_possible()});
    take_next_step();
  };
  args.store->note_failures(machine->policy().counts());
  request(self, args.committer, caf::infinite,
          end_run{status_of(machine->state()), end_reason})
    .then(tell, [unsaved, tell](caf::error& problem) {
      unsaved(from_caf(problem));
      tell();
    });
}

void driver_state::quit() {
  show();
  auto outcome = machine->state();
  if (outcome == run_state::finished)
    self->send_exit(args.group, caf::exit_reason::user_shutdown);
  else
    self->send_exit(args.group,
                    unfinished(concat("the run is ", to_string(outcome))));
  self->send_exit(args.committer, caf::exit_reason::user_shutdown);
  if (callbacks)
    self->send_exit(callbacks, caf::exit_reason::user_shutdown);
  args.monitor->finish();
  self->quit();
}

void driver_state::leave_result_behind() {
  self->attach_functor([store = args.store, monitor = args.monitor,
                        group = args.group, committer = args.committer,
                        callbacks = callbacks](const caf::error& reason) {
    if (monitor->is_over())
      return;                   // It has quit.
    if (!monitor->has_result()) // Else the end of the run is stored.
      monitor->prepare(result_of_death(*store, reason));
    try {
      // It ends its ranks before it exits.
      group->attach_functor(
        [monitor](const caf::error&) { monitor->finish(); });
      send_exit_anonymous(group, unfinished("the driver of the run died"));
      caf::anon_send_exit(committer, caf::exit_reason::user_shutdown);
      if (callbacks)
        caf::anon_send_exit(callbacks, caf::exit_reason::user_shutdown);
    } catch (...) { // No memory even for that: its caller must not wait.
      monitor->finish();
    }
  });
}

} // namespace troupe::internal
