// What the DRIVER makes of the facts that the WORKER GROUP sends about an
// attempt.

#include "troupe/actors/attempt_end.hpp"
#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/driver.hpp"
#include "troupe/runtime/counted.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

void driver_state::started(const attempt_started& x) {
  auto is_news =
    machine->state() == run_state::scheduling && x.attempt == begun->attempt;
  if (is_news && x.world_size != world_size) {
    auto why =
      x.world_size > world_size ? "more hosts are here" : fewer_ranks_for;
    note_event("world_resized",
               {{"from", world_size}, {"to", x.world_size}, {"why", why}});
    args.monitor->note(concat("attempt ", x.attempt, " has ",
                              counted(x.world_size, "rank"), " instead of ",
                              world_size));
    world_size = x.world_size;
    shown.world_size = x.world_size;
  }
  apply(run_events::ranks_started{x.attempt});
  announce(group_started{args.context.id, x.attempt, x.world_size});
}

void driver_state::close_group() {
  group_alive = false;
  close_mailboxes();
  refuse_batches({ec::stopped, "the attempt is over"});
}

void driver_state::ended(const attempt_ended& x) {
  close_group();
  auto end = end_of(x, machine->awaits_group(x.attempt));
  announce(group_ended{args.context.id, x.attempt, end.reason});
  if (end.event)
    apply_end(*end.event);
  group_gone(x.attempt);
}

void driver_state::failed(attempt_failed& x) {
  close_group();
  auto end = end_of(x, error_of(x.ranks).message);
  auto& reason = end.reason.message;
  if (x.left_for.empty()) {
    fewer_ranks_for = reason;
    note_event(event_kind::ranks_failed,
               {{"reason", reason}, {"started", x.started}});
  }
  if (!x.ranks.empty())
    call_back(after_exception{args.context.id, x.attempt, std::move(x.ranks)});
  announce(group_ended{args.context.id, x.attempt, end.reason});
  apply_end(*end.event);
  // If the run ends for this, its result says so.
  if (machine->state() != run_state::shutting_down
      && !is_terminal(machine->state()))
    args.monitor->note(reason);
  group_gone(x.attempt);
}

void driver_state::apply_end(const run_event& x) {
  if (auto left = std::get_if<run_events::ranks_left>(&x)) {
    fewer_ranks_for = left->why;
    note_event(event_kind::attempt_left, {{"reason", left->why}});
    args.monitor->note(
      concat("attempt ", left->attempt, " is continued: ", left->why));
  }
  apply(x);
}

void driver_state::group_lost(const error& reason) {
  if (ending.has_begun())
    return;
  close_group();
  announce(group_ended{args.context.id, begun->attempt, reason});
  apply(run_events::fatal_failure{reason});
  group_gone(begun->attempt);
}

void driver_state::group_gone(std::uint64_t attempt) {
  // A commit under way belongs to this attempt: its batch is in the journal
  // before the next attempt or the end, and its failure can still end the run.
  if (batches.is_storing()) {
    gone_attempt = attempt;
    return;
  }
  // The events above may already have requested a stop and answered it.
  if (machine->is_stopping())
    apply(run_events::group_stopped{attempt});
}

} // namespace troupe::internal
