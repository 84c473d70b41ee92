#include "troupe/actors/driver.hpp"

#include <algorithm>

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/protocol/error_code.hpp"
#include "troupe/runtime/counted.hpp"
#include "troupe/runtime/process/secrets.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// What a delayed restart means, human-readable.
std::string text_of_delay(const run_state_machine& machine,
                          std::chrono::milliseconds delay) {
  auto& policy = machine.policy();
  std::string ends;
  if (auto n = policy.failures_in_a_row(); n > 0)
    ends = "failed " + counted(n, "time");
  if (auto n = policy.leaves_in_a_row(); n > 0)
    ends += (ends.empty() ? "left " : " and left ") + counted(n, "time");
  return concat("the ranks ", ends,
                " without a report in between: they are restarted in ",
                duration_text(delay));
}

} // namespace

// -- the run

void driver_state::begin() {
  if (auto enough = stops.begin(args.first.first_report))
    store_stop(*enough);
  auto is_done = stops.is_done();
  if (!callbacks) {
    if (is_done)
      apply(run_events::completed{});
    else
      carry_out(machine->begin());
    return;
  }
  introduce(); // Its answer lets the first ranks start.
  replay_pending();
  if (is_done) // Its driver ended before it could say so.
    apply(run_events::completed{});
  show();
}

void driver_state::abort(const abort_run& x) {
  run_events::stop_requested event;
  if (!x.reason.empty())
    event.reason.message = x.reason;
  if (group_alive && machine->awaits_group(machine->attempt()))
    args.monitor->note(concat(
      redacted(event.reason.message), "; ranks have ",
      duration_text(args.stop_timeout), " to leave their loops",
      args.has_logs ? ", then they are killed" : "")); // Threads cannot be.
  apply(event);
}

void driver_state::preempt(const preempt_run& x) {
  leave_by.ask(x.grace_ms);
  apply(run_events::preempt_requested{{ec::stopped, x.reason}});
}

void driver_state::finish(const finish_run& x) {
  if (machine->state() >= run_state::shutting_down)
    return;
  auto enough = stops.finish(x.reason);
  if (!enough)
    return;
  store_stop(*enough);
  if (machine->state() == run_state::initializing)
    apply(run_events::completed{});
}

void driver_state::resize(const resize_callback_queue& x) {
  callback_queue =
    static_cast<std::size_t>(std::max<std::uint64_t>(x.places, 1));
  replay_pending();
  store_next();
}

void driver_state::carry_out(const run_order& x) {
  auto act = [this]<class T>(const T& what) {
    if constexpr (std::is_same_v<T, finish_run>)
      finish(what);
    else if constexpr (std::is_same_v<T, preempt_run>)
      preempt(what);
    else if constexpr (std::is_same_v<T, abort_run>)
      abort(what);
    else
      resize(what);
  };
  std::visit(act, x.what);
}

void driver_state::preempt_group(const run_action& action) {
  if (!leave_by.set(self->clock().now()))
    return;
  auto grace = leave_by.grace();
  send(self, args.group,
       preempt_attempt{action.attempt, action.reason.message, grace.count()});
  auto why = redacted(action.reason.message);
  args.monitor->note(
    concat(why, "; ranks have ", duration_text(grace),
           " to leave their loops after one of their reports"));
  note_event(event_kind::preempted,
             {{"reason", why},
              {"grace_s", std::chrono::duration<double>(grace).count()}});
  self->run_delayed(grace, [this, attempt = action.attempt] {
    apply(run_events::grace_over{attempt});
  });
}

void driver_state::apply(const run_event& event) {
  auto decision = machine->apply(event);
  if (!decision) {
    refused(event, decision.error());
    return;
  }
  carry_out(*decision);
}

void driver_state::carry_out(const run_decision& decision) {
  if (decision.from != decision.to)
    note_event("state", {{"from", to_string(decision.from)},
                         {"to", to_string(decision.to)}});
  if (is_terminal(decision.to))
    args.resources.reset(); // Who sees the end may start the next run.
  show();
  if (decision.from != decision.to)
    announce(state_changed{args.context.id, machine->attempt(), decision.from,
                           decision.to});
  act(decision.action);
}

void driver_state::refused(const run_event& event, const error& reason) {
  if (!is_about_group(event) || !noted_refusals.insert(name_of(event)).second)
    return;
  args.monitor->note("a defect of Troupe, the run continues: "
                     + reason.message);
  note_event("event_refused",
             {{"event", name_of(event)}, {"reason", reason.message}});
}

void driver_state::act(const run_action& action) {
  using kind = run_action::kind;
  switch (action.what) {
    case kind::none:
      return;
    case kind::wait:
      wait(action);
      return;
    case kind::start_group:
      start_group(action);
      return;
    case kind::stop_group:
      if (group_alive)
        send(self, args.group,
             stop_attempt{action.attempt, action.reason,
                          args.stop_timeout.count()});
      else
        group_gone(action.attempt);
      return;
    case kind::preempt_group:
      preempt_group(action);
      return;
    case kind::end:
      args.store->stop_waiting(); // for an attempt that must not begin
      end(action.reason);
      return;
  }
}

void driver_state::wait(const run_action& action) {
  if (machine->state() == run_state::restarting)
    args.monitor->note(text_of_delay(*machine, action.delay));
  self->run_delayed(action.delay, [this, attempt = action.attempt] {
    apply(run_events::wait_over{attempt});
  });
}

void driver_state::start_group(const run_action& action) {
  if (begun && begun->attempt == action.attempt) {
    launch(*begun);
    return;
  }
  args.store->note_failures(machine->policy().counts());
  request(self, args.committer, caf::infinite, begin_attempt{})
    .then([this](const attempt_start& x) { launch(x); },
          [this](caf::error& reason) {
            apply(run_events::fatal_failure{from_caf(reason)});
          });
}

void driver_state::show_store_events() {
  for (auto& event : args.store->take_events())
    args.monitor->note(to_string(event));
}

void driver_state::launch(const attempt_start& x) {
  begun = x;
  if (machine->state() != run_state::scheduling)
    return; // The run was stopped meanwhile.
  show_store_events();
  group_alive = true;
  shown.world_size = world_size;
  shown.waits.clear();
  shown.progress.reset();
  start_attempt message{x.attempt, std::nullopt, x.first_report};
  if (x.resume)
    message.resume = x.resume->data;
  send(self, args.group, std::move(message), driver_actor{self});
}

// -- what others say and see

void driver_state::warned(const attempt_warning& x) {
  auto text = redacted_lines(x.text); // It may quote an exception of a loop.
  shown.waits = x.waits ? text : std::string{};
  show();
  args.monitor->note(text);
  note_event(warning_kind, {{"text", text}});
}

void driver_state::advanced(const epoch_advanced& x) {
  if (x.attempt != machine->attempt())
    return;
  shown.progress = x.progress;
  show();
}

void driver_state::lost(const caf::down_msg& x) {
  if (std::erase_if(
        followers,
        [&](const follower& who) { return who.actor.address() == x.source; })
      || mailbox_lost(x.source))
    return;
  auto gone = [&](const char* who) {
    return error{ec::protocol,
                 std::string{who} + " is gone: " + text_of(x.reason)};
  };
  if (x.source == args.group.address())
    group_lost(gone("the worker group"));
  else if (x.source == args.committer.address())
    apply(run_events::fatal_failure{gone("the committer")});
  else if (callbacks && x.source == callbacks.address())
    callbacks_lost(gone("the actor that calls callbacks"));
}

void driver_state::callbacks_lost(const error& reason) {
  callbacks = nullptr;
  note_callback_failure(reason.message
                        + "; the run continues without callbacks");
}

run_status driver_state::status() const {
  auto result = shown_now();
  result.last_metrics = args.store->last_metrics().unpacked();
  return result;
}

run_status driver_state::shown_now() const {
  auto result = shown;
  auto now = clock::now();
  result.state = machine->state();
  result.attempt = machine->attempt();
  result.reports_per_second = rate->rate(now);
  result.elapsed_s = std::chrono::duration<double>(now - start_time).count();
  result.callback_queue = callbacks_under_way;
  return result;
}

void driver_state::show() {
  args.monitor->show(shown_now(), args.store->last_metrics());
}

void driver_state::note_event(std::string_view kind, const metrics& fields) {
  // If the journal fails, the next report ends the run.
  (void) args.store->append_event(kind, machine->attempt(), fields);
}

void driver_state::set_up(pointer own, driver_args given, driver_start start) {
  self = own;
  args = std::move(given);
  callbacks = std::move(start.callbacks);
  callback_queue = start.callback_queue;
  world_size = start.world_size;
  failure_policy policy{args.failure};
  policy.count_on(args.store->failures());
  machine.emplace(std::move(policy), args.first.attempt);
  begun = args.first;
  leave_by = {args.stop_grace, args.longest_grace};
  start_time = clock::now();
  begin_time = self->clock().now();
  stops =
    stop_judge{args.stop,
               std::move(start.enough),
               {args.store->stop_reason(), args.store->was_interrupted()}};
  rate.emplace(start_time);
  shown.reports = args.first.first_report;
  show();
  auto on_down = [this](const caf::down_msg& x) { lost(x); };
  monitor(self, args.group, on_down);
  monitor(self, args.committer, on_down);
  if (callbacks)
    monitor(self, callbacks, on_down);
  self->set_exception_handler(from_exception);
  leave_result_behind();
}

driver_actor::behavior_type driver(driver_state::pointer self, driver_args args,
                                   driver_start start) {
  auto& state = state_of(self);
  state.set_up(self, std::move(args), std::move(start));
  return {
    [&state](start_run) { state.begin(); },
    [&state](const abort_run& x) { state.abort(x); },
    [&state](const preempt_run& x) { state.preempt(x); },
    [&state](const finish_run& x) { state.finish(x); },
    [&state](const resize_callback_queue& x) { state.resize(x); },
    [&state](get_status) { return state.status(); },
    [&state](follow_run, run_observer_actor& who) {
      return state.follow_from_now(std::move(who));
    },
    [&state](follow_ranks, rank_observer_actor& who) {
      return state.follow_ranks_from_now(std::move(who));
    },
    [&state](open_mailbox& x, postbox_actor& box) {
      return state.open(x, box);
    },
    [&state](const attempt_started& x) { state.started(x); },
    [&state](const attempt_ended& x) { state.ended(x); },
    [&state](attempt_failed& x) { state.failed(x); },
    [&state](const attempt_warning& x) { state.warned(x); },
    [&state](const epoch_advanced& x) { state.advanced(x); },
    [&state](commit_batch& x) { return state.add(x); },
    [&state](const log_event& x) { return state.log(x); },
    [&state, self](get_checkpoints& x) {
      return delegate(self, state.args.committer, std::move(x));
    },
    [&state](fail_run& x) {
      state.apply(run_events::fatal_failure{std::move(x.reason)});
    },
  };
}

} // namespace troupe::internal
