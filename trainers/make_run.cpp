#include "troupe/trainers/run_parts.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <caf/io/middleman.hpp>

#include "troupe/actors/callback_actor.hpp"
#include "troupe/actors/callback_chain.hpp"
#include "troupe/actors/committer.hpp"
#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/driver.hpp"
#include "troupe/actors/host_agent.hpp"
#include "troupe/actors/process_launcher.hpp"
#include "troupe/actors/transport/network_thread.hpp"
#include "troupe/actors/worker_group.hpp"
#include "troupe/callbacks/trackers/default_trackers.hpp"
#include "troupe/runtime/config/rank_shares.hpp"
#include "troupe/runtime/hosts/host_plan.hpp"
#include "troupe/runtime/hosts/host_roster.hpp"
#include "troupe/runtime/hosts/network_addresses.hpp"
#include "troupe/runtime/process/spawner.hpp"
#include "troupe/runtime/process/threads.hpp"
#include "troupe/runtime/rank_logs.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/store/result.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/timing.hpp"
#include "troupe/trainers/loop_address.hpp"
#include "troupe/trainers/rank_runner.hpp"
#include "troupe/trainers/ring/link_security.hpp"

namespace troupe::internal {

namespace {

/// Actors of a run with their own thread: the committer, and the one that calls
/// callbacks.
constexpr std::size_t detached_actors = 2;

expected<group_plan> plan_of(const run_request& request,
                             const run_store& store) {
  group_plan plan;
  plan.run_name = *request.run.name;
  plan.run_path = store.path().string();
  plan.run_inode = store.folder().files().inode();
  plan.run_id = store.description().id;
  auto& scaling = request.scaling;
  plan.world = {std::max(scaling.num_workers.min, 1), world_size_of(scaling),
                scaling.workers_per_host};
  plan.resize = scaling.resize;
  plan.in_process = runs_here(scaling);
  for (int local = 0; local < std::ranges::max(slots_of(request)); ++local)
    plan.gpus.push_back(gpus_of(scaling, local, request.gpus));
  plan.environment = request.run.worker_env;
  plan.network_interface = request.scaling.network_interface;
  plan.report_timeout = request.run.report_timeout;
  plan.hang_timeout = request.run.hang_timeout;
  plan.start_timeout = request.run.start_timeout;
  plan.stop_timeout = request.run.stop_timeout;
  plan.exit_timeout = request.run.exit_timeout;
  plan.stop_grace = request.run.stop_grace;
  if (plan.in_process) // Threads are handed the loop itself.
    return plan;
  TROUPE_TRY(plan.loop, locate_loop(request.loop));
  return plan;
}

/// Without guests; one if it has no workers.
int planned_ranks(const run_request& x) {
  return std::max(ranks_in(shares_of(x)), 1);
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

/// The user's actors. Waits for connections, so it comes before anything else.
expected<std::vector<named_callback_actor>>
find_actors(const run_config& config, caf::actor_system& system) {
  std::vector<named_callback_actor> result;
  for (auto& x : config.callback_actors) {
    auto found = callback_actors::find(*x, system);
    if (!found)
      return failure(found.error().code,
                     concat("callback actor ", result.size() + 1, " (",
                            x->name(), "): ", found.error().message));
    result.push_back({x->name(), std::move(found->actor), found->observes});
  }
  return result;
}

/// The callbacks of a run.
struct run_callbacks {
  std::shared_ptr<callback_list> classes;
  std::vector<named_callback_actor> actors;
  std::shared_ptr<callback_cursor> cursor; ///< Unset: there are no callbacks.
};

expected<run_callbacks> find_callbacks(const run_config& config,
                                       std::vector<named_callback_actor> actors,
                                       run_store& store) {
  run_callbacks result{
    std::make_shared<callback_list>(config.callbacks, config.callback_errors),
    std::move(actors),
    {}};
  auto has_callbacks = !result.classes->empty() || !result.actors.empty();
  return open_callback_cursor(store, has_callbacks)
    .map([&](std::optional<callback_cursor> x) {
      if (x)
        result.cursor = std::make_shared<callback_cursor>(std::move(*x));
      return std::move(result);
    });
}

/// Makes a run in three steps. Nothing runs before the last one.
class run_starter {
public:
  run_starter(run_request request, caf::actor_system& system,
              run_surroundings around)
    : request_(std::move(request)), system_(system), around_(std::move(around)),
      here_(runs_here(request_.scaling)) {
    request_.loop.hooks = request_.run.rank_hooks;
  }

  /// Finds the run's requirements, then takes its name and opens its
  /// folder.
  expected<void> open();

  /// Places its ranks, and reserves the first attempt.
  expected<void> plan();

  /// Starts the actors.
  std::unique_ptr<run_parts> spawn();

  /// One of the first two steps failed for *reason*: returns what to say. If
  /// the run was given up, its folder says so from now on.
  error not_begun(error reason);

private:
  expected<void> find_spawner();
  expected<void> check_trackers() const;
  expected<void> check_ticket() const;
  expected<void> start_trackers();
  /// Of this host, for the ranks of others; empty: their agents will say.
  expected<std::string> find_address() const;
  /// The run's hosts; agents may join if it has a door.
  host_roster make_roster();
  std::shared_ptr<rank_launcher> make_launcher();
  /// On the network thread if its messages come from other processes, or where
  /// the lent thread can run it while it waits.
  template <class Behavior, class... Args>
  auto spawn_actor(Behavior behavior, Args... args) {
    return here_ && !around_.network
             ? system_.spawn(behavior, std::move(args)...)
             : spawn_on_network_thread(system_, behavior, std::move(args)...);
  }
  worker_group_args args_of_group();
  run_observer_actor spawn_callbacks();
  driver_args args_of_driver();
  driver_start start_of_driver();
  /// Tells the driver of a store that is lost.
  void report_loss() const;
  /// Passes what `troupe stop` asks for on to the driver.
  void pass_end_requests_on() const;
  /// Shows *text* to people.
  std::function<void(std::string)> note() const {
    return [monitor = run_->monitor](std::string text) {
      monitor->note(std::move(text));
    };
  }

  run_request request_; // its run is resolved
  caf::actor_system& system_;
  run_surroundings around_;
  const bool here_;
  spawner_connection* spawner_ = nullptr;
  std::unique_ptr<run_parts> run_ = std::make_unique<run_parts>();
  run_callbacks callbacks_;
  group_plan plan_;
  std::string own_address_;
  attempt_start first_;
};

// -- what may be missing

expected<void> run_starter::open() {
  TROUPE_TRY_VOID(find_spawner());
  TROUPE_TRY(auto actors, find_actors(request_.run, system_));
  if (around_.given_up && around_.given_up())
    return failure(ec::stopped, "the run was stopped before it began");
  TROUPE_TRY_VOID(check_trackers());
  TROUPE_TRY_VOID(check_ticket());
  TROUPE_TRY(run_->store,
             run_store::open(
               request_.run, request_.loop.config_text,
               request_.scaling.num_workers.is_elastic()
                 ? 0 // It differs from start to start.
                 : static_cast<std::size_t>(world_size_of(request_.scaling))));
  request_.run.name = run_->store->description().name;
  TROUPE_TRY_VOID(start_trackers());
  run_->store->stop_waiting_if(around_.given_up);
  TROUPE_TRY(callbacks_,
             find_callbacks(request_.run, std::move(actors), *run_->store));
  return {};
}

expected<void> run_starter::find_spawner() {
  if (here_)
    return {};
  TROUPE_TRY(spawner_, internal::spawner());
  if (!system_.has_middleman())
    return failure(ec::invalid_config,
                   "the actor system has no middleman: load "
                   "caf::io::middleman in its config");
  return {};
}

// A run that is refused leaves no folder.
expected<void> run_starter::check_trackers() const {
  auto& config = request_.run;
  run_description run;
  run.name = config.name.value_or("run");
  run.id = std::string(32, '0');
  run.config = request_.loop.config_text;
  return tracker_set::check(trackers_of(config), run,
                            config.storage_path / run.name);
}

expected<void> run_starter::check_ticket() const {
  if (request_.run.agent_ticket.empty())
    return {};
  if (shares_of(request_).size() < 2) {
    note()("run.agent_ticket is set, but no ticket is written: the run has one "
           "host");
    return {};
  }
  TROUPE_TRY(auto path, absolute_path(request_.run.agent_ticket));
  TROUPE_TRY(auto folder, look_up(path.parent_path()));
  if (!folder.is_folder())
    return failure(ec::invalid_config,
                   concat("run.agent_ticket is ", path.string(),
                          ", but there is no such folder"));
  if (!request_.tickets.empty())
    return {}; // It is not written.
  TROUPE_TRY(auto is_free, host_door::has_place_for_ticket(path));
  if (is_free)
    return {};
  return failure(
    ec::invalid_config,
    concat("run.agent_ticket is ", path.string(), ", which is not a ticket"));
}

expected<void> run_starter::start_trackers() {
  auto& store = *run_->store;
  TROUPE_TRY(
    run_->trackers,
    tracker_set::start(
      trackers_of(request_.run), store.description(), store.path(),
      {note(), [monitor = run_->monitor] { return monitor->status(); }}));
  store.on_append([trackers = run_->trackers] { trackers->notify(); });
  return {};
}

// -- the plan

expected<void> run_starter::plan() {
  auto& store = *run_->store;
  TROUPE_TRY(plan_, plan_of(request_, store));
  plan_.on_lent_thread = around_.thread != nullptr;
  if (shares_of(request_).size() > 1) {
    auto lost_after = request_.scaling.lost_after;
    store.expect_lost_hosts(lost_after);
    TROUPE_TRY(run_->door, host_door::open(plan_.run_id, request_.tickets,
                                           lost_after, note()));
    TROUPE_TRY(plan_.credentials, make_link_credentials(plan_.run_id));
    TROUPE_TRY(own_address_, find_address());
    if (around_.console && shares_of(request_).front().ranks == 0) {
      TROUPE_TRY(auto follower,
                 log_follower::start(concat(plan_.run_path, '/',
                                            run_layout::logs, '/', log_name(0)),
                                     around_.console));
      run_->rank_zero.emplace(std::move(follower));
    }
  }
  if (request_.hosts) {
    TROUPE_TRY(run_->launches, agent_launcher::start(*request_.hosts));
  }
  // At its end, the system would wait for an actor that gets no exit message.
  TROUPE_TRY_VOID(expect_threads(detached_actors));
  // Last of what may fail: an attempt that begins needs an end.
  auto first = store.begin_attempt();
  store.stop_waiting_if({});
  if (!first)
    return tl::unexpected<error>{std::move(first.error())};
  first_ = std::move(*first);
  return {};
}

error run_starter::not_begun(error reason) {
  auto& store = run_->store;
  if (reason.code != ec::stopped || !store || !around_.end_of_given_up)
    return reason;
  auto hinted = reason;
  if (!around_.is_trial)
    hinted.message += resume_hint(store->description().name);
  auto end = around_.end_of_given_up(hinted);
  if (end.status == run_status_kind::errored) // No one asked it to stop.
    return reason;
  (void) store->note_given_up(end.status, end.error);
  return hinted;
}

expected<std::string> run_starter::find_address() const {
  auto& wanted = request_.scaling.network_interface;
  if (wanted.empty() || shares_of(request_).front().ranks == 0)
    return std::string{};
  auto own = find_own_address(wanted);
  if (!own)
    return failure(ec::invalid_config,
                   concat("scaling.network_interface: ", own.error().message));
  return std::move(own->address);
}

// -- the actors

std::unique_ptr<run_parts> run_starter::spawn() {
  auto& x = *run_;
  if (request_.tickets.empty())
    x.agent_ticket = request_.run.agent_ticket;
  x.publishes_ticket = request_.publishes_ticket;
  x.launcher = make_launcher();
  x.agent = spawn_actor(host_agent, host_agent_args{x.launcher});
  *x.agent_cell = x.agent;
  x.group = spawn_actor(worker_group, args_of_group(), make_roster());
  auto args = args_of_driver();
  x.driver = spawn_actor(internal::driver, std::move(args), start_of_driver());
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
  auto own = own_agent_facts();
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
      request_.cores});
  auto find = [loop = request_.loop](const loop_spec&) -> expected<train_loop> {
    return loop;
  };
  auto body = [find, system = &system_, agent = x.agent_cell, kept = x.contexts,
               network = around_.network](std::uint64_t attempt, int rank,
                                          int segment) {
    (void) run_rank(*system,
                    {*agent, attempt, rank, segment, find, kept, network});
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
      callback_runner, user_callback_args{classes, run_->control});
  args.actors = std::move(callbacks_.actors);
  args.callback_errors = request_.run.callback_errors;
  args.patience = {request_.run.callback_timeout, request_.run.callback_limit,
                   note(), run_->callbacks_left_behind};
  return spawn_actor(callback_chain, std::move(args));
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

} // namespace

expected<std::unique_ptr<run_parts>> make_run(run_request request,
                                              caf::actor_system& system,
                                              run_surroundings around) {
  run_starter steps{std::move(request), system, std::move(around)};
  auto ready = steps.open().and_then([&] { return steps.plan(); });
  if (!ready)
    return tl::unexpected<error>{steps.not_begun(std::move(ready.error()))};
  return steps.spawn();
}

} // namespace troupe::internal
