#include "troupe/trainers/rank_runner.hpp"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include <caf/actor_system.hpp>

#include "troupe/actors/process_launcher.hpp"
#include "troupe/actors/protocol/error_code.hpp"
#include "troupe/actors/trainer.hpp"
#include "troupe/actors/transport/connect.hpp"
#include "troupe/actors/transport/system_config.hpp"
#include "troupe/runtime/process/processes.hpp"
#include "troupe/runtime/process/secrets.hpp"
#include "troupe/runtime/process/shared_segment.hpp"
#include "troupe/runtime/process/stack_dump.hpp"
#include "troupe/runtime/rank_logs.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/store/ranks_lock.hpp"
#include "troupe/runtime/store/result.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/trainers/actor_link.hpp"
#include "troupe/trainers/answer_of.hpp"
#include "troupe/trainers/call_user_code.hpp"
#include "troupe/trainers/loop_address.hpp"

namespace troupe::internal {

namespace {

/// How a rank's loop ended.
struct loop_outcome : call_outcome {
  bool logged = false; ///< The rank's log has it.
};

expected<start_loop> say_hello(network_waiter& self, const rank_args& args,
                               const trainer_actor& me) {
  return answer_of<start_loop>(
    request(self, args.agent, caf::infinite,
            rank_ready{args.attempt, args.rank, getpid(), own_host_name()}, me),
    from_caf);
}

expected<void> say_goodbye(network_waiter& self, const rank_args& args,
                           loop_outcome outcome) {
  // Before it is cut: a part of a secret would not be recognized.
  outcome.reason.message = cut_reason(redacted(outcome.reason.message));
  return answer_of<void>(
    request(self, args.agent, caf::infinite,
            loop_ended{args.attempt, args.rank, std::move(outcome.reason),
                       outcome.stopped}),
    from_caf);
}

/// Where the rank shows what it waits for; from here on a rank process also
/// answers requests for its stacks.
std::shared_ptr<rank_activity> show_activity(const rank_facts& x) {
  if (!x.in_process)
    answer_with_stacks(
      concat(x.run_path, '/', run_layout::logs, '/', stacks_name(x.rank)));
  auto segment = shared_segment::attach(x.segment, {x.run_id, x.attempt});
  if (!segment) // It cannot be inspected then; nothing else depends on it.
    return std::make_shared<rank_activity>();
  auto memory = std::make_shared<shared_segment>(std::move(*segment));
  return std::shared_ptr<rank_activity>{memory,
                                        &memory->activity(x.local_rank)};
}

/// Writes the whole reason of the failure to the rank's log, once, like a
/// program that ends with an exception.
void log_failure(int rank, loop_outcome& x) {
  if (!x.reason || x.stopped || std::exchange(x.logged, true))
    return;
  if (x.type.empty())
    std::fprintf(stderr, "troupe: rank %d failed: %s\n", rank,
                 x.reason.message.c_str());
  else
    std::fprintf(stderr,
                 "troupe: rank %d failed: its loop threw an instance of "
                 "'%s'\n  what():  %s\n",
                 rank, x.type.c_str(), x.reason.message.c_str());
}

/// A loop that has failed keeps its own reason.
void call_after_loop(const rank_hooks& hooks, train_context& context,
                     loop_outcome& outcome) {
  auto failure = call_rank_hook(
    "after_loop", [&] { hooks.after_loop(context, outcome.reason); });
  if (!failure)
    return;
  if (!outcome.reason)
    outcome = {failure, failure.code == ec::stopped};
  else
    std::fprintf(stderr, "troupe: rank %d: %s\n", context.rank(),
                 failure.message.c_str());
}

/// Prepares the process for *loop*, then calls it between its hooks. Calls
/// *failed* with a failure before the last hook, which may take long.
loop_outcome call_loop(const train_loop& loop, train_context& context,
                       const loop_control& control,
                       const std::function<void(loop_outcome&)>& failed) {
  auto& hooks = loop.hooks;
  auto call = [&](loop_stage stage) {
    return loop_outcome{
      call_user_code("the train loop", [&] { loop(context, stage); })};
  };
  if (auto ready = call(loop_stage::prepare); ready.reason)
    return ready;
  if (hooks.before_loop) {
    auto failure =
      call_rank_hook("before_loop", [&] { hooks.before_loop(context); });
    if (failure)
      return {failure, failure.code == ec::stopped};
  }
  rank_access{context}.on_report(hooks.on_report);
  auto outcome = call(loop_stage::run);
  // As if the loop had returned, unless it was ended before it had left.
  if (outcome.stopped && rank_access{context}.leaves_by_itself()
      && !control.ended())
    outcome = {};
  // A loop may swallow what leaves `report`; the rank has failed all the same.
  if (auto& failure = rank_access{context}.hook_failure())
    outcome = {failure, false};
  if (outcome.reason)
    failed(outcome);
  if (hooks.after_loop)
    call_after_loop(hooks, context, outcome);
  return outcome;
}

/// Gives the loop its link and its context, and takes both down after it.
loop_outcome run_loop(caf::actor_system& system, const rank_args& args,
                      start_loop start,
                      const std::shared_ptr<loop_control>& control) {
  auto loop = args.find(start.loop);
  if (!loop)
    return {loop.error()};
  start.facts.segment = args.segment;
  start.facts.threads = args.threads;
  auto activity = std::make_shared<shown_activity>(show_activity(start.facts));
  auto link = std::make_shared<actor_link>(
    system, args.network,
    agent_link{args.agent, args.attempt, args.rank, control, activity,
               std::move(start.credentials)});
  auto context = std::make_unique<train_context>(std::move(start.facts), link,
                                                 std::move(start.resume));
  auto outcome = call_loop(*loop, *context, *control, [&](loop_outcome& x) {
    x.stopped = x.stopped || control->ended();
    if (!rank_access{*context}.facts().in_process)
      log_failure(args.rank, x);
  });
  rank_access{*context}.end();
  activity->end(); // The context is kept, the memory of its attempt is not.
  args.kept->add(std::move(context));
  link->on_abort({});
  if (!outcome.reason)
    if (auto ok = link->drain(); !ok)
      outcome = {ok.error(), ok.error().code == ec::stopped};
  // A loop that was asked to end may throw anything, or return.
  outcome.stopped = outcome.stopped || control->ended();
  return outcome;
}

} // namespace

expected<void> run_rank(caf::actor_system& system, const rank_args& args) {
  auto control = std::make_shared<loop_control>();
  // A stopped driver may answer late; if the driver dies, the rank dies with
  // it.
  network_waiter self{system, args.network};
  trainer_args own{args.attempt, args.rank, args.agent, control};
  // In a program of the user beside the driver: an actor on the scheduler may
  // wait for this rank.
  auto me = args.network
              ? system.spawn(trainer, std::move(own))
              : spawn_on_network_thread(system, trainer, std::move(own));
  auto start = say_hello(self, args, me);
  expected<void> result;
  if (start) {
    auto has_log = !start->facts.in_process;
    loop_outcome outcome;
    try {
      outcome = run_loop(system, args, std::move(*start), control);
    } catch (...) { // Around the loop, such as the copy of a closure.
      outcome = {caught("the rank could not run its loop")};
    }
    if (has_log)
      log_failure(args.rank, outcome);
    result = say_goodbye(self, args, std::move(outcome));
  } else {
    result = tl::unexpected<error>{start.error()};
  }
  caf::anon_send_exit(me, caf::exit_reason::user_shutdown);
  return result;
}

namespace {

/// Tells the driver why this rank cannot take part in the attempt.
expected<void> refuse_attempt(caf::actor_system& system, const rank_args& args,
                              error reason) {
  loop_outcome outcome{std::move(reason)};
  log_failure(args.rank, outcome);
  network_waiter self{system, args.network};
  return say_goodbye(self, args, std::move(outcome));
}

/// Joins the attempt and its driver, then runs the rank.
expected<void> run_process(const std::string& payload,
                           const std::vector<int>& descriptors) {
  TROUPE_TRY(auto bootstrap, rank_bootstrap::from_bytes(payload));
  auto opens_ticket = !bootstrap.run_path.empty();
  if (descriptors.size() < (opens_ticket ? 2U : 3U))
    return failure(ec::protocol,
                   "a rank process got no connection to its driver");
  auto ticket = opens_ticket
                  ? open_ranks_ticket(bootstrap.run_path, bootstrap.token)
                  : expected<ranks_ticket>{
                    ranks_ticket{unique_fd{descriptors[2]}, bootstrap.token}};
  if (ticket) {
    TROUPE_TRY(auto lock, join_attempt(*ticket));
    lock.release(); // Open until this process ends.
  }
  // Never destroyed: the process ends right after its goodbye, and an orderly
  // shutdown of the system would only delay that.
  static auto config = new system_config;
  static auto system = new caf::actor_system{config->with_own_network_thread()};
  static auto network = new network_thread{*system};
  static auto kept = new auto{std::make_shared<retired_contexts>()};
  TROUPE_TRY(auto agent,
             connect<host_agent_actor>(*system, unique_fd{descriptors[1]}));
  rank_args args{std::move(agent), bootstrap.attempt, bootstrap.rank,
                 descriptors[0],   resolve_loop,      *kept,
                 network};
  return ticket ? run_rank(*system, args)
                : refuse_attempt(*system, args, std::move(ticket.error()));
}

} // namespace

int rank_process(std::string payload, std::vector<int> descriptors) {
  auto ok = run_process(payload, descriptors);
  if (ok)
    return 0;
  std::fprintf(stderr, "troupe: %s\n", ok.error().message.c_str());
  return 1;
}

} // namespace troupe::internal
