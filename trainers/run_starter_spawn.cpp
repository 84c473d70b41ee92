// The actors of a run: the last step of making it.

#include "troupe/trainers/run_starter.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "troupe/actors/committer.hpp"
#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/driver.hpp"
#include "troupe/actors/host_agent.hpp"
#include "troupe/actors/process_launcher.hpp"
#include "troupe/actors/transport/network_thread.hpp"
#include "troupe/actors/worker_group.hpp"
#include "troupe/runtime/config/rank_shares.hpp"
#include "troupe/runtime/hosts/host_plan.hpp"
#include "troupe/runtime/hosts/host_roster.hpp"
#include "troupe/runtime/process/cpu_plan.hpp"
#include "troupe/runtime/process/resource_ledger.hpp"
#include "troupe/runtime/timing.hpp"
#include "troupe/trainers/rank_runner.hpp"

namespace troupe::internal {

namespace {

/// More cards than a host has.
constexpr int any_card = 1'000'000;

/// Without guests; one if it has no workers.
int planned_ranks(const run_request& x) {
  return std::max(ranks_in(shares_of(x)), 1);
}

/// Threads for the operators of each rank, if ranks are threads: as many as a
/// process would have.
int operator_threads_of(const run_request& x) {
  if (auto cpus = claim_of(x.scaling).cpus; cpus > 0)
    return std::max(static_cast<int>(cpus), 1);
  return plan_cpus(own_cores(), world_size_of(x.scaling), x.runs_at_once)
    .threads_per_rank;
}

/// The context for callbacks of the run of *request* (resolved) in *store*.
run_context context_of(const run_request& request, const run_store& store) {
  run_context x;
  x.name = *request.run.name;
  x.path = store.path();
  x.start_time = run_context::clock::now();
  x.id = store.description().id;
  x.world_size = planned_ranks(request);
  x.config = request.loop.config_text;
  return x;
}

} // namespace

std::unique_ptr<run_parts> run_starter::spawn() {
  auto& x = *run_;
  if (request_.tickets.empty())
    x.agent_ticket = request_.run.agent_ticket;
  x.publishes_ticket = request_.publishes_ticket;
  x.launcher = make_launcher();
  x.agent =
    spawn_on_network_thread(system_, host_agent, host_agent_args{x.launcher});
  *x.agent_cell = x.agent;
  x.group = spawn_on_network_thread(system_, worker_group, args_of_group(),
                                    make_roster());
  auto args = args_of_driver();
  x.driver = spawn_on_network_thread(system_, internal::driver, std::move(args),
                                     start_of_driver());
  report_loss();
  order_receiver::connect(x.control, [driver = x.driver](run_order order) {
    std::visit([&](auto& what) { send_anonymous(driver, std::move(what)); },
               order.what);
  });
  pass_end_requests_on();
  return std::move(run_);
}

worker_group_args run_starter::args_of_group() {
  auto& x = *run_;
  worker_group_args args;
  args.agent = x.agent;
  args.plan = std::move(plan_);
  if (!x.door)
    return args;
  if (x.launches)
    args.launches = agent_launcher::functions_of(x.launches);
  args.leaves_as_one =
    request_.hosts && request_.hosts->engine == launch_engine::slurm;
  args.note = note();
  args.journal = [store = x.store](std::string_view kind, metrics fields) {
    (void) store->append_event(kind, fields);
  };
  args.abandon = [store = x.store](const std::string& host) {
    store->abandon_ranks_of(host);
  };
  args.cut_off = [system = &system_](const host_agent_actor& agent) {
    cut_off(*system, agent.node());
  };
  args.token = [store = x.store] { return store->ranks_token(); };
  return args;
}

void run_starter::report_loss() const {
  auto& store = *run_->store;
  store.on_loss([driver = run_->driver, trackers = run_->trackers,
                 folder = &store.folder()](const error& reason) {
    if (folder->is_ousted())
      trackers->abandon();
    send_anonymous(driver, fail_run{reason});
  });
}

void run_starter::pass_end_requests_on() const {
  run_->store->on_end_request([driver = run_->driver](const end_request& x) {
    auto reason = std::string{"the run was asked to end by `troupe stop`"};
    switch (x.how) {
      case end_kind::abort:
        send_anonymous(driver, abort_run{std::move(reason)});
        return;
      case end_kind::preempt:
        send_anonymous(driver, preempt_run{std::move(reason)});
        return;
      case end_kind::finish:
        send_anonymous(driver, finish_run{std::move(reason)});
        return;
    }
  });
}

host_roster run_starter::make_roster() {
  auto shares = shares_of(request_);
  if (!run_->door)
    return host_roster{shares.front().ranks};
  auto is_elastic = request_.scaling.num_workers.is_elastic();
  auto slots = slots_of(request_);
  std::vector<planned_host> hosts;
  for (std::size_t i = 0; i < shares.size(); ++i)
    hosts.push_back({request_.hosts ? request_.hosts->hosts[i].name : "",
                     shares[i].first_rank, shares[i].ranks,
                     is_elastic ? slots[i] : shares[i].ranks});
  host_limits limits;
  limits.join = request_.scaling.join_timeout;
  limits.suspect_after = request_.scaling.suspect_after;
  limits.lost_after = request_.scaling.lost_after;
  limits.claim = claim_of(request_.scaling);
  if (is_elastic) {
    limits.min_ranks = request_.scaling.num_workers.min;
    limits.max_ranks = request_.scaling.num_workers.max;
    limits.per_host = request_.scaling.workers_per_host;
  }
  auto& variables = request_.run.worker_env;
  if (auto shown = variables.find("CUDA_VISIBLE_DEVICES");
      shown != variables.end())
    limits.shown_gpus =
      static_cast<int>(visible_gpus(shown->second, any_card).size());
  auto own = own_agent_facts();
  own.gpus = static_cast<int>(resources_for(request_).gpus);
  own.address = std::move(own_address_);
  auto& address = run_->door->address();
  if (request_.hosts)
    return {hosts, std::move(own), limits, address, make_random_function()};
  return {hosts, std::move(own), limits, address};
}

std::shared_ptr<rank_launcher> run_starter::make_launcher() {
  auto& x = *run_;
  if (!here_)
    return std::make_shared<process_launcher>(process_launcher_args{
      spawner_,
      [endpoint = x.endpoint]() -> expected<unique_fd> {
        if (!*endpoint)
          return failure(ec::stopped, "the run is over");
        return (*endpoint)->new_connection();
      },
      std::move(around_.console), [store = x.store] { return store->ticket(); },
      resources_->cores, request_.inherited, request_.runs_at_once,
      // Programs do not know of each other: their runs would all be pinned to
      // the first cores of the host.
      around_.is_trial});
  auto find = [loop = request_.loop](const loop_spec&) -> expected<train_loop> {
    return loop;
  };
  auto body = [find, system = &system_, agent = x.agent_cell, kept = x.contexts,
               network = around_.network, share = std::weak_ptr{resources_},
               threads = operator_threads_of(request_)](std::uint64_t attempt,
                                                        int rank, int segment) {
    // No other run has the GPUs of a thread that is left behind.
    auto own = share.lock();
    (void) run_rank(
      *system, {*agent, attempt, rank, segment, find, kept, network, threads});
  };
  return x.threads = std::make_shared<thread_launcher>(
           std::move(body), std::move(around_.thread));
}

run_observer_actor run_starter::spawn_callbacks() {
  if (!callbacks_.cursor)
    return {};
  auto& classes = callbacks_.classes;
  callback_chain_args args;
  args.watch = classes->watch();
  if (!classes->empty())
    args.classes = system_.spawn<caf::detached>(
      callback_runner, callback_runner_args{classes, run_->control});
  args.actors = std::move(callbacks_.actors);
  args.callback_errors = request_.run.callback_errors;
  args.patience = {request_.run.callback_timeout, request_.run.callback_limit,
                   note(), run_->callbacks_left_behind};
  return spawn_on_network_thread(system_, callback_chain, std::move(args));
}

driver_args run_starter::args_of_driver() {
  auto& x = *run_;
  auto& config = request_.run;
  driver_args args;
  args.store = x.store;
  args.monitor = x.monitor;
  args.group = x.group;
  args.committer =
    system_.spawn<caf::detached>(committer, committer_args{x.store, x.monitor});
  args.cursor = x.cursor = callbacks_.cursor;
  args.context = context_of(request_, *x.store);
  args.failure = config.failure;
  args.stop = config.stop;
  args.first = std::move(first_);
  args.has_logs = !here_;
  args.stop_timeout = config.stop_timeout;
  args.stop_grace = config.stop_grace;
  args.longest_grace = longest_grace(config);
  args.is_trial = around_.is_trial;
  args.resources = std::move(resources_);
  return args;
}

driver_start run_starter::start_of_driver() {
  driver_start start;
  start.callbacks = spawn_callbacks();
  start.callback_queue = static_cast<std::size_t>(request_.run.callback_queue);
  start.world_size = planned_ranks(request_);
  start.enough = std::move(around_.enough);
  return start;
}

} // namespace troupe::internal
