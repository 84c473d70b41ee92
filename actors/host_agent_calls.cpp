// What the HOST AGENT does with the calls of its ranks, and what it
// understands.

#include <utility>

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/host_agent.hpp"
#include "troupe/actors/protocol/error_code.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/unix_time.hpp"

namespace troupe::internal {

namespace {

/// Held calls are passed on at this size: one message has a limit (64 MiB).
constexpr std::size_t most_held = std::size_t{8} << 20;

/// About how many bytes the report takes in a message.
std::size_t size_of(const report& x) {
  auto result = x.value.values.bytes().size();
  if (x.value.part)
    for (auto& file : x.value.part->files)
      result += file.path.size() + sizeof(file);
  return result;
}

std::size_t size_of(const join_barrier& x) {
  return x.payload.size();
}

std::size_t size_of(const reports_awaited&) {
  return 0;
}

error unknown(int rank) {
  return {ec::protocol, concat("this host has no rank ", rank)};
}

} // namespace

// -- to the worker group

template <class Call>
void host_agent_state::call(int rank, Call what, bool is_due) {
  auto& a = *attempt;
  auto& shown = a.segment.activity(a.local(rank));
  auto& held = a.held.emplace_back();
  held.at = {self->clock().now()};
  held.waited = shown.waited.load(std::memory_order_relaxed);
  a.held_bytes += size_of(what);
  held.what.emplace<Call>(std::move(what));
  if (is_due || a.held_bytes >= most_held)
    pass_calls_on();
}

void host_agent_state::pass_calls_on() {
  attempt->held_bytes = 0;
  if (!attempt->held.empty())
    send(self, group,
         host_calls{attempt->number, std::exchange(attempt->held, {})});
}

caf::result<report_committed> host_agent_state::add(report& x) {
  auto open = attempt.open(x.attempt);
  if (!open)
    return to_caf(open.error());
  auto a = *open;
  auto rank = x.value.rank;
  auto index = x.value.index;
  if (!a->find(rank))
    return to_caf(unknown(rank));
  auto promise = self->make_response_promise<report_committed>();
  a->reports.emplace(index, pending_report{rank, promise});
  auto is_due = a->batch.report(a->local(rank), index, x.waits);
  call(rank, std::move(x), is_due);
  return promise;
}

void host_agent_state::awaited(const reports_awaited& x) {
  auto a = attempt.current(x.attempt);
  if (a && !a->end_reason && a->find(x.rank))
    call(x.rank, x, a->batch.await_reports(a->local(x.rank)));
}

caf::result<barrier_released> host_agent_state::join(join_barrier& x) {
  auto open = attempt.open(x.attempt);
  if (!open)
    return to_caf(open.error());
  auto a = *open;
  auto rank = x.rank;
  auto slot = a->find(rank);
  if (!slot)
    return to_caf(unknown(rank));
  auto promise = self->make_response_promise<barrier_released>();
  slot->barrier = promise;
  auto is_due = a->batch.arrive(a->local(rank), x.sequence, x.kind);
  call(rank, std::move(x), is_due);
  return promise;
}

template <class Answer, class Message, class... More>
caf::result<Answer> host_agent_state::pass_on(Message& x, More&... more) {
  if (!group)
    return to_caf({ec::stopped, "no attempt has begun"});
  if (attempt)
    pass_calls_on();
  auto promise = self->make_response_promise<Answer>();
  auto fail = [promise](caf::error& reason) mutable {
    promise.deliver(reason);
  };
  auto answer =
    request(self, group, caf::infinite, std::move(x), std::move(more)...);
  if constexpr (std::is_void_v<Answer>)
    std::move(answer).then([promise]() mutable { promise.deliver(); }, fail);
  else
    std::move(answer).then(
      [promise](Answer& value) mutable { promise.deliver(std::move(value)); },
      fail);
  return promise;
}

// -- from the worker group

void host_agent_state::answer(reports_answered& x) {
  auto a = attempt.current(x.attempt);
  if (!a)
    return;
  // Here, not in the rank: one that reports ahead takes its answers later.
  if (auto& stop = x.answer.stop;
      stop && stop->kind != stop_info::kind_type::finished)
    stop->deadline_ms =
      a->deadline.of(stop->deadline_ms, stop->left_ms,
                     unix_ms(std::chrono::system_clock::now()));
  a->batch.answered(x.answer.index);
  auto [first, last] = a->reports.equal_range(x.answer.index);
  for (auto i = first; i != last; ++i)
    if (x.reason)
      i->second.promise.deliver(to_caf(x.reason));
    else
      i->second.promise.deliver(x.answer);
  a->reports.erase(first, last);
}

void host_agent_state::answer(const barrier_answered& x) {
  auto a = attempt.current(x.attempt);
  if (!a)
    return;
  a->batch.released();
  for (auto& slot : a->ranks)
    if (auto waiting = std::exchange(slot.barrier, std::nullopt); !waiting)
      continue;
    else if (x.reason)
      waiting->deliver(to_caf(x.reason));
    else
      waiting->deliver(x.answer);
}

void host_agent_state::refuse(const call_refused& x) {
  auto a = attempt.current(x.attempt);
  auto slot = a ? a->find(x.rank) : nullptr;
  if (!slot)
    return;
  auto why = to_caf(x.reason);
  if (!x.report) {
    if (auto waiting = std::exchange(slot->barrier, std::nullopt))
      waiting->deliver(why);
    return;
  }
  auto [first, last] = a->reports.equal_range(*x.report);
  for (auto i = first; i != last;)
    if (i->second.rank == x.rank) {
      i->second.promise.deliver(why);
      i = a->reports.erase(i);
    } else {
      ++i;
    }
}

void host_agent_state::answer_all(const error& reason) {
  auto why = to_caf(reason);
  for (auto& [index, pending] : std::exchange(attempt->reports, {}))
    pending.promise.deliver(why);
  for (auto& slot : attempt->ranks)
    if (auto waiting = std::exchange(slot.barrier, std::nullopt))
      waiting->deliver(why);
}

// -- what it understands

host_agent_actor::behavior_type host_agent(host_agent_state::pointer self,
                                           host_agent_args args) {
  auto& state = state_of(self);
  state.self = self;
  state.args = std::move(args);
  self->set_exception_handler(from_exception);
  self->attach_functor([launcher = state.args.launcher,
                        ranks = state.started](const caf::error& reason) {
    if (reason == caf::none || reason == caf::exit_reason::user_shutdown
        || says_unfinished(reason))
      return;
    for (auto rank : *ranks)
      launcher->kill(rank);
  });
  return {
    [&state](start_ranks& x, worker_group_actor& from) {
      return state.start(x, std::move(from));
    },
    [&state](const end_ranks& x) { state.end(x); },
    [&state](const kill_rank& x) { state.kill(x); },
    [&state](const attempt_over& x) { state.over(x); },
    [&state](reports_answered& x) { state.answer(x); },
    [&state](const barrier_answered& x) { state.answer(x); },
    [&state](const call_refused& x) { state.refuse(x); },
    [&state](const look_at_ranks& x) { return state.look(x); },
    [&state](const show_stacks& x) { return state.ask_for_stacks(x); },
    [&state](ask_for_place) {
      if (state.args.ask_for_place)
        state.args.ask_for_place();
    },
    [&state](rank_ready& x, trainer_actor& trainer) {
      return state.welcome(x, std::move(trainer));
    },
    [&state](report& x) { return state.add(x); },
    [&state](const reports_awaited& x) { state.awaited(x); },
    [&state](join_barrier& x) { return state.join(x); },
    [&state](loop_ended& x) { return state.end_loop(x); },
    [&state](log_event& x) { return state.pass_on<void>(x); },
    [&state](get_checkpoints& x) { return state.pass_on<checkpoint_list>(x); },
    [&state](open_mailbox& x, postbox_actor& box) {
      return state.pass_on<caf::actor>(x, box);
    },
    [&state](store_set& x) { return state.pass_on<void>(x); },
    [&state](store_get& x) { return state.pass_on<std::string>(x); },
    [&state](store_add& x) { return state.pass_on<std::int64_t>(x); },
    [&state](store_check& x) { return state.pass_on<bool>(x); },
    [&state](store_wait& x) { return state.pass_on<void>(x); },
    [&state](store_erase& x) { return state.pass_on<bool>(x); },
    [&state](store_size& x) { return state.pass_on<std::int64_t>(x); },
    [&state](store_compare_set& x) { return state.pass_on<std::string>(x); },
    [&state](const rank_launched& x) { state.launched(x); },
    [&state](rank_exited& x) { state.exited(x); },
    [&state](rank_launch_failed& x) { state.launch_failed(x); },
  };
}

} // namespace troupe::internal
