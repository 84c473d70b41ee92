// What a run needs before anything of it runs: the first two steps of making
// it.

#include "troupe/trainers/run_starter.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "troupe/actors/callback_actor.hpp"
#include "troupe/callbacks/trackers/default_trackers.hpp"
#include "troupe/runtime/config/rank_shares.hpp"
#include "troupe/runtime/counted.hpp"
#include "troupe/runtime/hosts/host_plan.hpp"
#include "troupe/runtime/hosts/network_addresses.hpp"
#include "troupe/runtime/process/inheritance.hpp"
#include "troupe/runtime/process/resource_ledger.hpp"
#include "troupe/runtime/process/spawner_connection.hpp"
#include "troupe/runtime/process/threads.hpp"
#include "troupe/runtime/process/usable_cores.hpp"
#include "troupe/runtime/rank_logs.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/store/result.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/values/journal_entry.hpp"
#include "troupe/trainers/loop_address.hpp"
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
    plan.gpus.push_back(gpus_of(scaling, local));
  plan.environment = request.run.worker_env;
  plan.network_interface = request.scaling.network_interface;
  plan.report_timeout = request.run.report_timeout;
  plan.hang_timeout = request.run.hang_timeout;
  plan.start_timeout = request.run.start_timeout;
  plan.stop_timeout = request.run.stop_timeout;
  plan.exit_timeout = request.run.exit_timeout;
  plan.host_grace = host_grace(request.run);
  plan.preempt_signals = request.run.preempt_signals;
  if (plan.in_process) // Threads are handed the loop itself.
    return plan;
  TROUPE_TRY(plan.loop, locate_loop(request.loop));
  return plan;
}

/// The GPUs that the ranks of *x* on this host need, and the cores that they
/// claim: those of a run with other hosts have all, as they have there.
resource_ledger::demand demand_of(const run_request& x) {
  auto& scaling = x.scaling;
  auto each = claim_of(scaling);
  auto shares = shares_of(x);
  auto ranks = shares.front().ranks;
  resource_ledger::demand result;
  if (each.gpus > 0) {
    auto most = scaling.num_workers.is_elastic() ? slots_of(x).front() : ranks;
    result.gpus = gpus_shown_with(visible_devices_of(x));
    result.gpu_count = static_cast<std::size_t>(each.gpus * most);
  }
  if (each.cpus > 0 && shares.size() == 1 && !runs_here(scaling)) {
    auto own = own_cores();
    own.numbers.resize(static_cast<std::size_t>(own.count));
    result.cores = std::move(own.numbers);
    result.core_count =
      static_cast<std::size_t>(std::max(std::floor(each.cpus * ranks), 1.0));
  }
  return result;
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

} // namespace

// -- what may be missing

expected<void> run_starter::open() {
  if (!system_.has_middleman())
    return failure(ec::invalid_config,
                   "the actor system has no middleman: load "
                   "caf::io::middleman in its config");
  TROUPE_TRY_VOID(find_spawner());
  TROUPE_TRY(auto actors, find_actors(request_.run, system_));
  if (around_.given_up && around_.given_up())
    return failure(ec::stopped, "the run was stopped before it began");
  TROUPE_TRY_VOID(check_trackers());
  TROUPE_TRY_VOID(check_ticket());
  TROUPE_TRY_VOID(take_ways());
  TROUPE_TRY(run_->store,
             run_store::open(
               request_.run, request_.loop.config_text,
               request_.scaling.num_workers.is_elastic()
                 ? 0 // It differs from start to start.
                 : static_cast<std::size_t>(world_size_of(request_.scaling)),
               [this] { return prepare_agents(); }));
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
  if (!request_.inherited) {
    TROUPE_TRY(request_.inherited, inherit(spawner_->variables()));
  }
  return {};
}

// Agents start while the run is recovered, and end if it cannot be.
expected<void> run_starter::prepare_agents() {
  if (request_.hosts && !run_->launches) {
    TROUPE_TRY(run_->launches, agent_launcher::start(*request_.hosts));
  }
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

expected<void> run_starter::take_ways() {
  if (shares_of(request_).size() < 2)
    return {};
  auto take = [this](std::string name) {
    return agent_way::take(std::move(name)).map([this](agent_way x) {
      run_->ways.push_back(std::move(x));
    });
  };
  if (request_.publishes_ticket)
    TROUPE_TRY_VOID(take("the agents of mpirun serve"));
  if (!request_.tickets.empty())
    return take("the agents of TROUPE_DRIVER serve");
  if (request_.run.agent_ticket.empty())
    return {};
  TROUPE_TRY(auto path, absolute_path(request_.run.agent_ticket));
  return take(
    concat("run.agent_ticket is ", path.string(), ", which leads agents to"));
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
  take_resources();
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
  // At its end, the system would wait for an actor that gets no exit message.
  TROUPE_TRY_VOID(expect_threads(detached_actors));
  // Last of what may fail: an attempt that begins needs an end.
  auto first = store.begin_attempt();
  store.stop_waiting_if({});
  if (!first)
    return tl::unexpected<error>{std::move(first.error())};
  first_ = std::move(*first);
  note_sharing();
  note_unused_hosts();
  return {};
}

void run_starter::take_resources() {
  resources_ = own_resource_ledger().take(demand_of(request_));
  auto each = static_cast<std::size_t>(claim_of(request_.scaling).gpus);
  std::span rest{resources_->gpus};
  for (; each > 0 && rest.size() >= each; rest = rest.subspan(each)) {
    auto mine = rest.first(each);
    plan_.own_gpus.emplace_back(mine.begin(), mine.end());
  }
}

void run_starter::note_sharing() const {
  std::string what;
  if (auto n = resources_->gpus_in_use; n > 0)
    append_item(what, counted(n, "GPU"), " and ");
  if (auto n = resources_->cores_in_use; n > 0)
    append_item(what, counted(n, "core"), " and ");
  if (what.empty())
    return;
  auto text =
    concat("the run shares ", what, " with other runs of this program");
  note()(text);
  (void) run_->store->append_event(warning_kind, {{"text", text}});
}

void run_starter::note_unused_hosts() const {
  auto n = static_cast<std::uint64_t>(request_.unused_hosts);
  if (n == 0)
    return;
  auto& scaling = request_.scaling;
  auto here = runs_here(scaling);
  std::string why = "ranks of this process are on its host alone";
  if (!here)
    why = concat(
      "the run has only ",
      counted(static_cast<std::uint64_t>(scaling.num_workers.max), "rank"));
  note()(concat(counted(n, here ? "other host" : "host"),
                n == 1 ? " has" : " have", " no ranks, because ", why));
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
