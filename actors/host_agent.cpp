#include "troupe/actors/host_agent.hpp"

#include <algorithm>
#include <utility>

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/protocol/error_code.hpp"
#include "troupe/runtime/report/rank_places.hpp"

namespace troupe::internal {

namespace {

call_batch batch_for(const start_ranks& x) {
  auto first = x.ranks.empty() ? 0 : x.ranks.front().first_report;
  return call_batch{static_cast<int>(x.ranks.size()), first, x.holds_calls};
}

} // namespace

host_agent_state::attempt_state::attempt_state(start_ranks x,
                                               shared_segment memory)
  : order(std::move(x)), segment(std::move(memory)), ranks(order.ranks.size()),
    batch(batch_for(order)) {}

int host_agent_state::attempt_state::local(int rank) const {
  // Ranks of a host are numbered one after the other.
  return rank - order.ranks.front().rank;
}

host_agent_state::rank_slot* host_agent_state::attempt_state::find(int rank) {
  auto i = order.ranks.empty() ? -1 : local(rank);
  auto known = i >= 0 && i < static_cast<int>(ranks.size());
  return known ? &ranks[static_cast<std::size_t>(i)] : nullptr;
}

// -- start of an attempt

caf::result<void> host_agent_state::start(start_ranks& x,
                                          worker_group_actor from) {
  group = std::move(from);
  attempt.reset();
  auto run_id = x.ranks.empty() ? std::string{} : x.ranks.front().run_id;
  auto segment = shared_segment::create(static_cast<int>(x.ranks.size()),
                                        {run_id, x.attempt});
  if (!segment)
    return to_caf(segment.error());
  args.launcher->prepare(x);
  attempt.begin(x.attempt, std::move(x), std::move(*segment));
  started->clear();
  for (auto& facts : attempt->order.ranks) {
    started->push_back(facts.rank);
    launch(facts.rank);
  }
  return caf::unit;
}

void host_agent_state::launch(int rank) {
  auto me = self->address();
  auto tell = [me](rank_launcher::event x) {
    auto send = [&](auto& what) {
      if (auto strong = caf::actor_cast<caf::strong_actor_ptr>(me))
        send_anonymous(caf::actor_cast<host_agent_actor>(strong),
                       std::move(what));
    };
    std::visit(send, x);
  };
  args.launcher->launch(attempt->number, rank, attempt->segment.descriptor(),
                        tell);
}

caf::result<start_loop> host_agent_state::welcome(rank_ready& x,
                                                  trainer_actor trainer) {
  auto a = attempt.current(x.attempt);
  auto slot = a ? a->find(x.rank) : nullptr;
  if (!slot)
    return to_caf(attempt.too_late(x.attempt));
  if (a->end_reason)
    return to_caf(a->end_reason);
  monitor(self, trainer,
          [this](const caf::down_msg& x) { trainer_lost(x.source); });
  slot->trainer = std::move(trainer);
  a->batch.came_up(a->local(x.rank));
  pass_calls_on();
  auto promise = self->make_response_promise<start_loop>();
  auto number = x.attempt;
  auto rank = x.rank;
  request(self, group, caf::infinite, std::move(x))
    .then(
      [this, promise, number, rank]() mutable {
        if (auto open = attempt.open(number))
          promise.deliver(start_for(rank));
        else
          promise.deliver(to_caf(open.error()));
      },
      [promise](caf::error& why) mutable { promise.deliver(why); });
  return promise;
}

start_loop host_agent_state::start_for(int rank) const {
  auto& order = attempt->order;
  auto local = static_cast<std::size_t>(attempt->local(rank));
  auto leads = order.ranks[local].local_rank == 0;
  return {order.ranks[local], order.resume, order.loop,
          leads ? order.credentials : std::nullopt};
}

// -- what became of a rank

void host_agent_state::launched(const rank_launched& x) {
  if (auto a = attempt.current(x.attempt); a && a->find(x.rank))
    tell(x);
}

void host_agent_state::launch_failed(rank_launch_failed& x) {
  auto a = attempt.current(x.attempt);
  auto slot = a ? a->find(x.rank) : nullptr;
  if (!slot)
    return;
  slot->gone = true;
  tell(std::move(x));
}

void host_agent_state::exited(rank_exited& x) {
  auto a = attempt.current(x.attempt);
  auto slot = a ? a->find(x.rank) : nullptr;
  if (!slot)
    return;
  slot->gone = true;
  x.ended_before = slot->ended_before || !a->end_reason;
  tell(std::move(x));
}

void host_agent_state::trainer_lost(const caf::actor_addr& who) {
  if (!attempt)
    return;
  for (auto& facts : attempt->order.ranks) {
    auto& slot = *attempt->find(facts.rank);
    if (!slot.trainer || slot.trainer.address() != who)
      continue;
    slot.trainer = nullptr;
    // A rank whose last message was answered sends nothing more. A thread has
    // no connection.
    if (!facts.in_process && !slot.loop_over)
      tell(rank_disconnected{attempt->number, facts.rank});
    return;
  }
}

caf::result<void> host_agent_state::end_loop(loop_ended& x) {
  auto a = attempt.current(x.attempt);
  auto slot = a ? a->find(x.rank) : nullptr;
  if (!slot)
    return to_caf(attempt.too_late(x.attempt));
  slot->loop_over = true;
  a->batch.loop_ended(a->local(x.rank));
  // For each of n ranks, so that system calls for all would be n * n.
  tell(rank_loop_ended{x.attempt, std::move(x), slot->was_in_call, shown()});
  return caf::unit;
}

// -- the end of an attempt

void host_agent_state::end(const end_ranks& x) {
  auto a = attempt.current(x.attempt);
  if (!a || a->end_reason)
    return;
  for (auto& known : shown()) {
    auto& slot = *a->find(known.rank);
    slot.ended_before = !slot.gone && args.launcher->has_ended(known.rank);
    slot.was_in_call =
      a->batch.blocks(a->local(known.rank)) || asks_driver(known);
  }
  a->end_reason = x.reason;
  a->held.clear();
  a->segment.abort(x.reason);
  answer_all(x.reason);
  for (auto& slot : a->ranks)
    if (slot.trainer)
      send(self, slot.trainer, stop_loop{x.attempt, x.reason});
}

void host_agent_state::kill(const kill_rank& x) {
  if (auto a = attempt.current(x.attempt); a && a->find(x.rank))
    args.launcher->kill(x.rank);
}

void host_agent_state::over(const attempt_over& x) {
  if (!attempt.current(x.attempt))
    return;
  answer_all({ec::stopped, "the attempt is over"});
  attempt.reset();
}

// -- how ranks are

std::vector<rank_snapshot> host_agent_state::shown() const {
  auto& first = attempt->order.ranks.front();
  return snapshots_of(attempt->segment, first.rank,
                      first.local_world_size < first.world_size);
}

std::vector<rank_snapshot> host_agent_state::snapshots() const {
  auto result = shown();
  for (auto& x : result) {
    x.is_stopped = args.launcher->is_stopped(x.rank);
    x.has_ended = args.launcher->has_ended(x.rank);
  }
  return result;
}

host_snapshots host_agent_state::look(const look_at_ranks& x) {
  host_snapshots result{x.attempt, {}};
  if (!attempt.is(x.attempt))
    return result;
  pass_calls_on();
  result.ranks = snapshots();
  for (auto rank : x.examined)
    if (attempt->find(rank))
      result.ranks[static_cast<std::size_t>(attempt->local(rank))].vitals =
        args.launcher->vitals(rank);
  return result;
}

stacks_shown host_agent_state::ask_for_stacks(const show_stacks& x) {
  stacks_shown result{x.attempt, {}};
  if (auto a = attempt.current(x.attempt))
    for (auto rank : x.ranks)
      if (a->find(rank) && args.launcher->show_stacks(rank))
        result.ranks.push_back(rank);
  return result;
}

} // namespace troupe::internal
