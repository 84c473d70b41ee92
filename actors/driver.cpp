#include "troupe/actors/driver.hpp"

#include <algorithm>

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/protocol/error_code.hpp"
#include "troupe/runtime/process/secrets.hpp"
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

/// The result of the run in *store* whose driver died for *reason*, perhaps for
/// a lack of memory: then it says less.
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

/// Ensures that waiting callers get a result even if the driver dies. CAF ends
/// the program if this throws.
void survive(driver_state::pointer self, const driver_args& args) {
  self->attach_functor([store = args.store, monitor = args.monitor,
                        group = args.group, committer = args.committer,
                        callbacks = args.callbacks](const caf::error& reason) {
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

/// What a delayed restart means, human-readable.
std::string text_of_delay(const run_state_machine& machine,
                          std::chrono::milliseconds delay) {
  auto& policy = machine.policy();
  std::string ends;
  if (auto n = policy.failures_in_a_row(); n > 0)
    ends = concat("failed ", n, n == 1 ? " time" : " times");
  if (auto n = policy.leaves_in_a_row(); n > 0)
    ends += concat(ends.empty() ? "" : " and ", "left ", n,
                   n == 1 ? " time" : " times");
  return concat("the ranks ", ends,
                " without a report in between: they are restarted in ",
                delay.count(), " ms");
}

} // namespace

// -- the run

void driver_state::begin() {
  auto is_done = !args.store->stop_reason().empty();
  if (is_done) // Unless ranks may not have saved what they had.
    is_done = !args.store->was_interrupted();
  else if (auto enough = stops.judge(args.first.first_report)) {
    decide_stop(*enough);
    is_done = true;
  }
  if (!args.callbacks) {
    if (is_done)
      apply(run_events::completed{});
    else
      follow(machine->begin());
    return;
  }
  // Its answer lets the first ranks start.
  call_back(before_run{context_at(args.first.attempt)});
  replay_pending();
  if (is_done) // Its driver ended before it could say so.
    apply(run_events::completed{});
  show();
}

void driver_state::stop(const stop_run& x) {
  run_events::stop_requested event;
  if (!x.reason.empty())
    event.reason.message = x.reason;
  apply(event);
}

void driver_state::preempt(const preempt_run& x) {
  leave_by.ask(x.grace_ms);
  apply(run_events::preempt_requested{{ec::stopped, x.reason}});
}

void driver_state::complete(const complete_run& x) {
  if (ending.has_begun() || machine->state() >= run_state::shutting_down
      || !args.store->stop_reason().empty())
    return;
  decide_stop(x.reason.empty() ? "the run was asked to finish" : x.reason);
  if (machine->state() == run_state::initializing)
    apply(run_events::completed{});
}

void driver_state::resize(const resize_callback_queue& x) {
  args.callback_queue =
    static_cast<std::size_t>(std::max<std::uint64_t>(x.places, 1));
  replay_pending();
  store_next();
}

void driver_state::obey(const run_order& x) {
  auto act = [this]<class T>(const T& what) {
    if constexpr (std::is_same_v<T, complete_run>)
      complete(what);
    else if constexpr (std::is_same_v<T, preempt_run>)
      preempt(what);
    else if constexpr (std::is_same_v<T, stop_run>)
      stop(what);
    else
      resize(what);
  };
  std::visit(act, x.what);
}

void driver_state::preempt_group(const run_action& action) {
  if (!leave_by.set(self->clock().now()))
    return;
  auto grace = leave_by.grace();
  auto unix_time = std::chrono::system_clock::now() + grace;
  send(self, args.group,
       preempt_attempt{action.attempt, action.reason.message,
                       std::chrono::duration_cast<std::chrono::milliseconds>(
                         unix_time.time_since_epoch())
                         .count()});
  auto why = redacted(action.reason.message);
  args.monitor->note(
    concat(why, "; ranks have ", grace.count(),
           " ms to leave their loops after one of their reports"));
  note_event("preempted",
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
  follow(*decision);
}

void driver_state::follow(const run_decision& decision) {
  if (decision.from != decision.to)
    note_event("state", {{"from", to_string(decision.from)},
                         {"to", to_string(decision.to)}});
  show();
  if (decision.from != decision.to)
    announce(state_changed{machine->attempt(), decision.from, decision.to});
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
      finish(action.reason);
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
            apply(run_events::run_failed{from_caf(reason)});
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
  shown.world_size = args.world_size;
  shown.waits.clear();
  shown.progress.reset();
  start_attempt message{x.attempt, std::nullopt, x.first_report};
  if (x.resume)
    message.resume = x.resume->data;
  send(self, args.group, std::move(message), driver_actor{self});
}

// -- facts about the group

void driver_state::started(const attempt_started& x) {
  auto is_news =
    machine->state() == run_state::scheduling && x.attempt == begun->attempt;
  if (is_news && x.world_size != args.world_size) {
    note_event("world_resized", {{"from", args.world_size},
                                 {"to", x.world_size},
                                 {"why", last_left_for}});
    args.monitor->note(concat("attempt ", x.attempt, " has ", x.world_size,
                              " ranks instead of ", args.world_size));
    args.world_size = x.world_size;
    shown.world_size = x.world_size;
  }
  apply(run_events::group_started{x.attempt});
  announce(group_started{x.attempt, x.world_size});
}

void driver_state::ended(const attempt_ended& x) {
  group_alive = false;
  close_mailboxes();
  error why;
  if (x.stopped || x.preempted)
    why = {ec::stopped,
           x.stopped ? "the ranks were stopped" : "the ranks were preempted"};
  if (!x.left_for.empty())
    why = {ec::stopped, "the ranks left: " + x.left_for};
  announce(group_ended{x.attempt, std::move(why)});
  refuse_batches({ec::stopped, "the attempt is over"});
  if (!x.left_for.empty())
    left(x.attempt, x.left_for);
  else if (!x.stopped)
    apply(run_events::ranks_finished{x.attempt, x.preempted});
  else if (machine->awaits_group(x.attempt))
    left(x.attempt, "its ranks were ended before their loops had returned");
  group_gone(x.attempt);
}

void driver_state::left(std::uint64_t attempt, const std::string& why) {
  auto text = redacted(why);
  last_left_for = text;
  note_event("attempt_left", {{"reason", text}});
  args.monitor->note(concat("attempt ", attempt, " is continued: ", text));
  apply(run_events::ranks_left{attempt, std::move(text)});
}

void driver_state::failed(attempt_failed& x) {
  group_alive = false;
  close_mailboxes();
  auto reason =
    x.ranks.empty() ? redacted(x.reason.message) : error_of(x.ranks).message;
  if (x.left_for.empty())
    note_event("ranks_failed", {{"reason", reason}, {"started", x.started}});
  if (!x.ranks.empty())
    call_back(after_exception{x.attempt, x.ranks});
  announce(group_ended{
    x.attempt, {x.ranks.empty() ? x.reason.code : ec::rank_failed, reason}});
  refuse_batches({ec::stopped, "the attempt is over"});
  if (x.is_final) {
    apply(run_events::run_failed{std::move(x.reason)});
  } else if (!x.left_for.empty()) {
    left(x.attempt, x.left_for);
  } else if (x.started) {
    apply(run_events::ranks_failed{x.attempt, std::move(x.ranks)});
  } else {
    auto why =
      x.ranks.empty() ? x.reason : error{ec::spawn, error_of(x.ranks).message};
    apply(run_events::group_start_failed{x.attempt, std::move(why)});
  }
  // If the run ends for this, its result says so.
  if (machine->state() != run_state::shutting_down
      && !is_terminal(machine->state()))
    args.monitor->note(reason);
  group_gone(x.attempt);
}

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
    apply(run_events::run_failed{gone("the committer")});
  else if (args.callbacks && x.source == args.callbacks.address())
    callbacks_lost(gone("the actor that calls callbacks"));
}

void driver_state::group_lost(const error& reason) {
  if (ending.has_begun())
    return;
  group_alive = false;
  close_mailboxes();
  announce(group_ended{begun->attempt, reason});
  refuse_batches({ec::stopped, "the attempt is over"});
  apply(run_events::run_failed{reason});
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

void driver_state::callbacks_lost(const error& reason) {
  args.callbacks = nullptr;
  note_callback_failure(reason.message
                        + "; the run continues without callbacks");
}

// -- the end

void driver_state::finish(const error& reason) {
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
  if (end_reason && must_leave())
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
  switch (ending.next(callbacks_under_way + last_calls)) {
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
      call_back(after_run{args.monitor->prepared().unpacked_if_possible()});
    take_next_step();
  };
  args.store->note_failures(machine->policy().counts());
  request(self, args.committer, caf::infinite,
          finish_run{status_of(machine->state()), end_reason})
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
  if (args.callbacks)
    self->send_exit(args.callbacks, caf::exit_reason::user_shutdown);
  args.monitor->finish();
  self->quit();
}

// -- what others see

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

driver_actor::behavior_type driver(driver_state::pointer self,
                                   driver_args args) {
  auto& state = state_of(self);
  state.self = self;
  state.args = std::move(args);
  auto& first = state.args.first;
  failure_policy policy{state.args.failure};
  policy.count_on(state.args.store->failures());
  state.machine.emplace(std::move(policy), first.attempt);
  state.begun = first;
  state.leave_by = {state.args.stop_grace, state.args.longest_grace};
  state.start_time = driver_state::clock::now();
  state.begin_time = self->clock().now();
  state.stops = stop_judge{state.args.stop};
  state.rate.emplace(state.start_time);
  state.shown.reports = first.first_report;
  state.show();
  auto on_down = [&state](const caf::down_msg& x) { state.lost(x); };
  monitor(self, state.args.group, on_down);
  monitor(self, state.args.committer, on_down);
  if (state.args.callbacks)
    monitor(self, state.args.callbacks, on_down);
  self->set_exception_handler(from_exception);
  survive(self, state.args);
  return {
    [&state](start_run) { state.begin(); },
    [&state](const stop_run& x) { state.stop(x); },
    [&state](const preempt_run& x) { state.preempt(x); },
    [&state](const complete_run& x) { state.complete(x); },
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
    [&state](storage_lost& x) {
      state.apply(run_events::run_failed{std::move(x.reason)});
    },
  };
}

} // namespace troupe::internal
