#include "troupe/actors/worker_group.hpp"

#include <algorithm>
#include <utility>

#include "troupe/actors/protocol/error_code.hpp"

namespace troupe {

namespace {

/// How long a rank's exception waits for the exit of another rank that may have
/// caused it: a killed peer shows as a broken connection in the others before
/// its own end is known.
constexpr auto settle_time = std::chrono::milliseconds{20};

/// How long ranks that were let down wait for a cause, unless one shows that it
/// has left the others' collectives: that one has `exit_timeout` more.
constexpr auto cause_patience = std::chrono::seconds{2};

/// How long a rank whose connection broke may take until its process is known
/// to have ended.
constexpr auto exit_patience = std::chrono::seconds{2};

/// How long a killed process may take to be gone. A spawner that hangs is
/// overcome within two seconds; what takes longer waits for a disk or a device.
constexpr auto kill_patience = std::chrono::seconds{10};

/// A timer that fires later than this was delayed with the whole driver,
/// because a signal had stopped it or the machine slept.
constexpr auto standstill = std::chrono::seconds{1};

} // namespace

worker_group_state::attempt_state::attempt_state(const start_attempt& x,
                                                 const group_plan& plan)
  : number(x.attempt), first_report(x.first_report), resume(x.resume),
    tracker(plan.world_size), meetings(plan.world_size, x.first_report),
    monitor(plan.world_size, {plan.report_timeout, plan.hang_timeout}),
    stragglers(plan.world_size),
    waited(static_cast<std::size_t>(plan.world_size)),
    loops(static_cast<std::size_t>(plan.world_size)),
    answered(static_cast<std::size_t>(plan.world_size)),
    trainers(static_cast<std::size_t>(plan.world_size)) {}

// -- start of an attempt

void worker_group_state::start(const start_attempt& x, driver_actor from) {
  driver = std::move(from);
  auto& plan = args.plan;
  attempt.emplace(x, plan);
  auto segment =
    shared_segment::create(plan.world_size, {plan.run_id, x.attempt});
  if (!segment) {
    self->send(driver, attempt_failed{x.attempt, false, segment.error(), {}});
    attempt.reset();
    return;
  }
  attempt->segment = std::move(*segment);
  for (int rank = 0; rank < plan.world_size; ++rank)
    launch(rank);
  watch_start();
}

void worker_group_state::after(std::chrono::milliseconds limit,
                               std::function<void()> f, bool again) {
  auto due = args.now() + limit;
  self->run_delayed(limit, [this, limit, due, again, f = std::move(f),
                            number = attempt->number]() mutable {
    if (!attempt || attempt->number != number)
      return;
    // Messages that ranks sent while the driver was stopped come after this.
    if (again && args.now() - due > standstill)
      after(limit, std::move(f), false);
    else
      f();
  });
}

void worker_group_state::watch_start() {
  after(args.plan.start_timeout, [this] {
    if (attempt->started)
      return;
    auto limit = std::to_string(args.plan.start_timeout.count());
    for (auto rank : attempt->tracker.not_ready())
      attempt->tracker.timed_out(rank, attempt->tracker.pid(rank) == 0
                                         ? "was not started within " + limit
                                             + " ms: its spawner did not answer"
                                         : "was not up " + limit
                                             + " ms after its launch");
    on_failure();
  });
}

void worker_group_state::launch(int rank) {
  auto number = attempt->number;
  caf::weak_actor_ptr me{self->ctrl()};
  auto tell = [me](auto what) {
    if (auto strong = me.lock())
      caf::anon_send(caf::actor_cast<worker_group_actor>(strong),
                     std::move(what));
  };
  rank_launcher::events events;
  events.launched = [=](int r, int pid) {
    tell(rank_launched{number, r, pid});
  };
  events.failed = [=](int r, error reason) {
    tell(rank_launch_failed{number, r, std::move(reason)});
  };
  events.exited = [=](int r, process_exit cause) {
    tell(rank_exited{number, r, std::move(cause)});
  };
  args.launcher->launch(number, rank, attempt->segment->descriptor(), events);
}

rank_facts worker_group_state::facts_of(int rank) const {
  auto& plan = args.plan;
  auto mine = [rank](auto& lists) {
    return lists.empty() ? std::vector<int>{}
                         : lists[static_cast<std::size_t>(rank)];
  };
  rank_facts x;
  x.run_name = plan.run_name;
  x.run_id = args.plan.run_id;
  x.run_path = plan.run_path;
  x.run_inode = plan.run_inode;
  x.attempt = attempt->number;
  x.rank = x.local_rank = rank;
  x.world_size = x.local_world_size = plan.world_size;
  x.in_process = plan.in_process;
  x.cores = mine(plan.cores);
  x.gpus = mine(plan.gpus);
  x.first_report = attempt->first_report;
  x.report_timeout_ms = plan.report_timeout ? plan.report_timeout->count() : 0;
  return x;
}

void worker_group_state::launched(const rank_launched& x) {
  auto a = current(x.attempt);
  if (!a || !a->tracker.knows(x.rank))
    return;
  a->tracker.launched(x.rank, x.pid);
  if (a->tracker.end_ordered())
    kill_rank(x.rank);
}

void worker_group_state::launch_failed(const rank_launch_failed& x) {
  auto a = current(x.attempt);
  if (!a || !a->tracker.knows(x.rank))
    return;
  a->tracker.launch_failed(x.rank, x.reason);
  on_failure();
  check_over();
}

caf::result<start_loop> worker_group_state::welcome(const trainer_ready& x,
                                                    trainer_actor trainer) {
  auto a = current(x.attempt);
  if (!a || !a->tracker.knows(x.rank))
    return to_caf(too_late(x.attempt));
  if (a->tracker.end_ordered())
    return to_caf(a->end_reason);
  a->tracker.launched(x.rank, x.pid);
  a->tracker.ready(x.rank, x.host);
  self->monitor(trainer);
  a->trainers[static_cast<std::size_t>(x.rank)] = std::move(trainer);
  if (!a->started && a->tracker.all_ready()) {
    a->started = true;
    self->send(driver, attempt_started{a->number, args.plan.world_size});
    a->last_check = args.now();
    watch_ranks();
  }
  return start_loop{facts_of(x.rank), a->resume, args.plan.loop};
}

caf::result<void> worker_group_state::end_loop(const loop_ended& x) {
  auto a = current(x.attempt);
  if (!a || !a->tracker.knows(x.rank))
    return to_caf(too_late(x.attempt));
  // A rank that gave up on its peers is not the one to blame.
  auto& shown = a->segment->activity(x.rank);
  auto gave_up = x.reason.code == ec::timeout && shown.gave_up_collective();
  auto late = gave_up ? late_in_collectives(x.rank) : std::vector<int>{};
  if (!a->tracker.end_ordered())
    for (auto rank : late)
      a->tracker.timed_out(rank, x.reason.message);
  a->loops[static_cast<std::size_t>(x.rank)].ended = self->clock().now();
  // The end of a call or a collective may carry the order before `stop_loop`
  // arrives, and a loop may turn it into another exception.
  auto let_down = shown.failed.load() == collective_failure::others;
  auto told = x.stopped || x.reason.code == ec::stopped || let_down
              || a->answered[static_cast<std::size_t>(x.rank)];
  auto stopped = told && a->tracker.end_ordered();
  a->tracker.loop_ended(x.rank, x.reason, stopped || !late.empty(), let_down);
  if (!x.reason && !a->tracker.end_ordered()) {
    if (auto ok = a->meetings.loop_ended(x.rank); !ok)
      a->tracker.broke_a_rule(x.rank, ok.error().message);
  }
  watch_exit(x.rank);
  on_failure();
  return caf::unit;
}

void worker_group_state::watch_exit(int rank) {
  if (args.plan.on_lent_thread)
    return;
  auto limit = args.plan.exit_timeout;
  after(limit, [this, rank, limit] {
    if (attempt->tracker.gone(rank))
      return;
    auto what = "rank " + std::to_string(rank) + " was still there "
                + std::to_string(limit.count())
                + " ms after its loop had ended; its ";
    if (args.plan.in_process) {
      what += "thread is left behind";
      attempt->tracker.give_up(rank);
    } else {
      what += "process was killed";
      kill_rank(rank);
    }
    self->send(driver, attempt_warning{attempt->number, std::move(what)});
    check_over();
  });
}

void worker_group_state::exited(const rank_exited& x) {
  auto a = current(x.attempt);
  if (!a || !a->tracker.knows(x.rank))
    return;
  a->tracker.exited(x.rank, x.cause);
  on_failure();
  check_over();
}

void worker_group_state::trainer_lost(const caf::actor_addr& who) {
  if (!attempt)
    return;
  for (int rank = 0; rank < args.plan.world_size; ++rank) {
    auto& trainer = attempt->trainers[static_cast<std::size_t>(rank)];
    if (!trainer || trainer.address() != who)
      continue;
    trainer = nullptr;
    if (args.plan.in_process)
      return;
    // A rank whose last message was answered sends nothing more.
    if (attempt->tracker.loop_over(rank))
      return;
    // If its process has ended, the cause follows in a moment; later with a
    // spawner that hangs.
    after(exit_patience, [this, rank] {
      if (attempt->tracker.gone(rank))
        return;
      if (args.launcher->has_ended(rank))
        after(kill_patience, [this, rank] {
          lose(rank, "its connection broke, and no one could tell within "
                       + std::to_string(kill_patience.count())
                       + " s that its process has ended");
        });
      else
        lose(rank, "its connection broke but its process is still there");
    });
  }
}

void worker_group_state::lose(int rank, std::string why) {
  if (attempt->tracker.gone(rank) || attempt->tracker.end_ordered())
    return;
  attempt->tracker.lost(rank, std::move(why));
  on_failure();
}

// -- the end of an attempt

void worker_group_state::leave() {
  leaving = true;
  if (!attempt)
    self->quit();
  else if (!attempt->tracker.end_ordered())
    end_ranks({ec::stopped, "the driver is gone"}, args.plan.stop_timeout);
}

void worker_group_state::stop(const stop_attempt& x) {
  auto a = current(x.attempt);
  if (!a) {
    self->send(driver, attempt_ended{x.attempt, true});
    return;
  }
  // Whatever the reason, ranks are asked to leave: they have not failed.
  if (!a->tracker.end_ordered())
    end_ranks({ec::stopped, x.reason.message},
              std::chrono::milliseconds{x.grace_ms});
}

void worker_group_state::preempt(const preempt_attempt& x) {
  if (auto a = current(x.attempt))
    a->preemption = x;
}

void worker_group_state::on_failure() {
  auto a = attempt ? &*attempt : nullptr;
  if (!a || a->tracker.end_ordered() || a->settling)
    return;
  if (a->tracker.lacks_cause())
    on_let_down();
  if (!a->tracker.failed())
    return;
  auto& first = *a->tracker.failures().begin();
  error reason{ec::stopped, "rank " + std::to_string(first.first)
                              + " failed: " + to_string(first.second)};
  if (args.plan.in_process
      || first.second.kind != rank_failure::kind_type::exception) {
    end_ranks(reason, args.plan.in_process ? args.plan.stop_timeout
                                           : std::chrono::milliseconds{0});
    return;
  }
  a->settling = true;
  self->run_delayed(settle_time, [this, reason, number = a->number] {
    if (attempt && attempt->number == number && !attempt->tracker.end_ordered())
      end_ranks(reason, std::chrono::milliseconds{0});
  });
}

void worker_group_state::on_let_down() {
  auto is_over = attempt->heard_out && still_heard_out().empty();
  if (is_over || !attempt->tracker.may_hear_cause()) {
    attempt->tracker.blame_let_down();
  } else if (!std::exchange(attempt->awaits_cause, true)) {
    after(cause_patience, [this] {
      if (may_blame_let_down())
        wait_for_leavers();
      on_failure();
    });
  }
}

bool worker_group_state::may_blame_let_down() const {
  return attempt->tracker.lacks_cause() && !attempt->tracker.end_ordered();
}

void worker_group_state::wait_for_leavers() {
  attempt->heard_out = leavers();
  if (attempt->heard_out->empty())
    return; // `on_failure` blames.
  after(args.plan.exit_timeout, [this] {
    if (!may_blame_let_down())
      return;
    for (auto rank : still_heard_out())
      if (!args.launcher->has_ended(rank)) // Else its end comes by itself.
        attempt->tracker.timed_out(
          rank,
          "left the collectives of other ranks, and its loop had not ended "
            + std::to_string(args.plan.exit_timeout.count()) + " ms later");
    on_failure();
  });
}

std::vector<int> worker_group_state::still_heard_out() const {
  auto result = leavers();
  std::erase_if(result, [&known = *attempt->heard_out](int rank) {
    return std::ranges::find(known, rank) == known.end();
  });
  return result;
}

std::vector<int> worker_group_state::leavers() const {
  std::vector<int> result;
  for (int rank = 0; rank < args.plan.world_size; ++rank) {
    if (attempt->tracker.loop_over(rank) || attempt->tracker.gone(rank))
      continue;
    auto& shown = attempt->segment->activity(rank);
    auto has_left = shown.left_group.load() != 0
                    && shown.failed.load() != collective_failure::others
                    && attempt->meetings.call_of(rank).empty();
    if (has_left || args.launcher->has_ended(rank))
      result.push_back(rank);
  }
  return result;
}

void worker_group_state::end_ranks(const error& reason,
                                   std::chrono::milliseconds grace) {
  auto& a = *attempt;
  auto ended = a.tracker.still_there();
  std::erase_if(ended,
                [this](int rank) { return !args.launcher->has_ended(rank); });
  a.tracker.order_end(ended);
  for (int rank = 0; rank < args.plan.world_size; ++rank)
    a.answered[static_cast<std::size_t>(rank)] = is_in_call(rank);
  a.end_reason = reason;
  a.segment->abort(reason);
  answer_all(reason);
  for (auto& trainer : a.trainers)
    if (trainer)
      self->send(trainer, stop_loop{a.number, reason});
  if (grace.count() == 0)
    kill_ranks();
  else
    after(grace, [this] { kill_ranks(); });
}

void worker_group_state::kill_ranks() {
  if (args.plan.on_lent_thread) {
    self->send(driver, attempt_warning{
                         attempt->number,
                         "the loop was not left "
                           + std::to_string(args.plan.stop_timeout.count())
                           + " ms after it was told to end: the run waits for "
                             "it"});
    return;
  }
  for (auto rank : attempt->tracker.still_there()) {
    if (!args.plan.in_process) {
      kill_rank(rank);
      continue;
    }
    attempt->tracker.timed_out(
      rank, "did not leave its loop "
              + std::to_string(args.plan.stop_timeout.count())
              + " ms after it was told to; its thread is left behind");
    attempt->tracker.give_up(rank);
  }
  check_over();
}

void worker_group_state::kill_rank(int rank) {
  args.launcher->kill(rank);
  after(kill_patience, [this, rank] {
    if (attempt->tracker.gone(rank))
      return;
    auto& tracker = attempt->tracker;
    if (!tracker.loop_over(rank))
      tracker.lost(rank, "its process was still there "
                           + std::to_string(kill_patience.count())
                           + " s after it was killed; it is left behind");
    tracker.give_up(rank);
    on_failure();
    check_over();
  });
}

void worker_group_state::answer_all(const error& reason) {
  auto& a = *attempt;
  auto why = to_caf(reason);
  for (auto& [index, promise] : a.reports)
    promise.deliver(why);
  for (auto& promise : a.barriers)
    promise.deliver(why);
  for (auto& [id, pending] : a.getters)
    pending.promise.deliver(why);
  for (auto& [id, promise] : a.waiters)
    promise.deliver(why);
  a.reports.clear();
  a.barriers.clear();
  a.getters.clear();
  a.waiters.clear();
}

void worker_group_state::check_over() {
  if (!attempt || !attempt->tracker.all_gone())
    return;
  auto& a = *attempt;
  answer_all({ec::stopped, "the attempt is over"});
  if (a.tracker.failed())
    self->send(driver,
               attempt_failed{a.number, a.started || a.tracker.loop_failed(),
                              a.end_reason, a.tracker.failures()});
  else
    self->send(driver,
               attempt_ended{a.number, !a.tracker.all_returned(),
                             a.leave_after
                               && a.meetings.next_report() > *a.leave_after});
  attempt.reset();
  if (leaving)
    self->quit();
}

// -- what others ask

worker_group_state::attempt_state*
worker_group_state::current(std::uint64_t number) {
  if (attempt && attempt->number == number)
    return &*attempt;
  ++stale_messages;
  return nullptr;
}

error worker_group_state::too_late(std::uint64_t number) const {
  return {ec::stopped, "attempt " + std::to_string(number) + " is over"};
}

group_status worker_group_state::status() const {
  group_status result;
  result.stale_messages = stale_messages;
  if (!attempt)
    return result;
  result.attempt = attempt->number;
  result.next_report = attempt->meetings.next_report();
  result.store_keys = attempt->store.size();
  for (auto& wait : waits())
    result.missing.insert(result.missing.end(), wait.missing.begin(),
                          wait.missing.end());
  std::ranges::sort(result.missing);
  auto again = std::ranges::unique(result.missing);
  result.missing.erase(again.begin(), again.end());
  for (int rank = 0; rank < args.plan.world_size; ++rank) {
    result.ranks.push_back(attempt->tracker.status(rank));
    result.ranks.back().reports = attempt->meetings.reports_of(rank);
    if (result.ranks.back().where == rank_status::phase::running)
      result.ranks.back().place = place_of(rank);
  }
  return result;
}

worker_group_actor::behavior_type worker_group(worker_group_state::pointer self,
                                               worker_group_args args) {
  auto& state = self->state;
  state.self = self;
  state.args = std::move(args);
  self->set_down_handler(
    [&state](caf::down_msg& x) { state.trainer_lost(x.source); });
  self->set_exit_handler([&state](caf::exit_msg&) { state.leave(); });
  self->set_exception_handler(from_exception);
  // A group that dies of a defect kills its ranks.
  self->attach_functor(
    [launcher = state.args.launcher,
     ranks = state.args.plan.world_size](const caf::error& reason) {
      for (int rank = 0; reason && launcher && rank < ranks; ++rank)
        launcher->kill(rank);
    });
  return {
    [&state](const start_attempt& x, driver_actor& from) {
      state.start(x, std::move(from));
    },
    [&state](const stop_attempt& x) { state.stop(x); },
    [&state](const preempt_attempt& x) { state.preempt(x); },
    [&state](const trainer_ready& x, trainer_actor& trainer) {
      return state.welcome(x, std::move(trainer));
    },
    [&state](report& x) { return state.add(x); },
    [&state](const reports_awaited& x) { state.awaited(x); },
    [&state](join_barrier& x) { return state.join(x); },
    [&state](const loop_ended& x) { return state.end_loop(x); },
    [&state, self](log_event& x) -> caf::result<void> {
      if (!state.current(x.attempt))
        return to_caf(state.too_late(x.attempt));
      return self->delegate(state.driver, std::move(x));
    },
    [&state, self](get_checkpoints& x) {
      return self->delegate(state.driver, std::move(x));
    },
    [&state](store_set& x) { return state.set(x); },
    [&state](const store_get& x) { return state.get(x); },
    [&state](const store_add& x) { return state.add(x); },
    [&state](const store_check& x) -> caf::result<bool> {
      if (auto a = state.current(x.attempt))
        return a->store.check(x.keys);
      return to_caf(state.too_late(x.attempt));
    },
    [&state](const store_wait& x) { return state.wait(x); },
    [&state](const store_erase& x) -> caf::result<bool> {
      if (auto a = state.current(x.attempt))
        return a->store.erase(x.key);
      return to_caf(state.too_late(x.attempt));
    },
    [&state](const store_size& x) -> caf::result<std::int64_t> {
      if (auto a = state.current(x.attempt))
        return static_cast<std::int64_t>(a->store.size());
      return to_caf(state.too_late(x.attempt));
    },
    [&state](store_compare_set& x) { return state.compare_set(x); },
    [&state](get_status) { return state.status(); },
    [&state](const rank_launched& x) { state.launched(x); },
    [&state](const rank_exited& x) { state.exited(x); },
    [&state](const rank_launch_failed& x) { state.launch_failed(x); },
  };
}

} // namespace troupe
