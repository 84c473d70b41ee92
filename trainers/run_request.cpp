#include "troupe/trainers/run_request.hpp"

#include <algorithm>
#include <utility>

#include "troupe/runtime/counted.hpp"
#include "troupe/runtime/hosts/host_list.hpp"
#include "troupe/runtime/hosts/host_plan.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/inheritance.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/trainers/launch.hpp"
#include "troupe/trainers/mpi_launch.hpp"

namespace troupe::internal {

namespace {

expected<void> refuse_closures(const rank_hooks& x) {
  const std::pair<bool, const char*> hooks[] = {
    {x.before_loop.is_closure(), "before_loop"},
    {x.after_loop.is_closure(), "after_loop"},
    {x.on_report.is_closure(), "on_report"}};
  for (auto& [is_closure, name] : hooks)
    if (is_closure)
      return failure(ec::invalid_config,
                     std::string{"run.rank_hooks."} + name
                       + " is a closure, which other processes cannot find: "
                         "give a function or a captureless lambda, or set "
                         "scaling.where to placement::in_process");
  return {};
}

/// The most ranks of a run whose own hosts have *planned*: guests may have
/// more.
int most_ranks(const run_request& x, const worker_count& planned) {
  auto& scaling = x.scaling;
  if (x.run.agent_ticket.empty())
    return planned.max;
  if (auto each = scaling.workers_per_host; each > 0)
    return std::max(planned.max, each * scaling.max_hosts);
  return planned.is_elastic() ? scaling.num_workers.max : planned.max;
}

/// Takes what *found* says about agents that come by themselves.
expected<void> take_agents(run_request& x, const launch_environment& found) {
  auto& scaling = x.scaling;
  switch (found.engine) {
    case launch_engine::ssh:
      if (scaling.agents > 0)
        return failure(ec::invalid_config,
                       "scaling.agents says that agents come by themselves, "
                       "but hosts are given to start them on: use one of them");
      break;
    case launch_engine::tickets:
      x.tickets = found.ticket_path;
      if (scaling.agents == 0) {
        scaling.agents = found.agents;
        x.has_found_agents = true;
      }
      if (scaling.agents == 0)
        return failure(ec::invalid_config,
                       "TROUPE_DRIVER names this host, but neither "
                       "TROUPE_AGENTS nor scaling.agents says how many agents "
                       "come");
      break;
    case launch_engine::mpi: {
      TROUPE_TRY(auto hosts, mpi_host_count());
      scaling.agents = hosts - 1;
      x.publishes_ticket = x.has_found_agents = true;
      break;
    }
    case launch_engine::none:
    case launch_engine::slurm:
      break;
  }
  return {};
}

/// The ranks of this host and of those whose agents come by themselves.
worker_count ranks_with_agents(const scaling_config& x) {
  if (x.workers_per_host <= 0)
    return x.num_workers;
  auto hosts = x.agents + 1;
  auto fewest = x.min_hosts > 0 ? x.min_hosts : hosts;
  return {x.workers_per_host * fewest, x.workers_per_host * hosts};
}

/// Plans the hosts of *found* on which agents are launched.
expected<void> plan_launch(run_request& x, const launch_environment& found) {
  auto& scaling = x.scaling;
  TROUPE_TRY(auto plan,
             plan_hosts(found, scaling.num_workers, scaling.workers_per_host,
                        scaling.min_hosts));
  scaling.num_workers = {plan.ranks.min, most_ranks(x, plan.ranks)};
  x.unused_hosts = plan.unused;
  if (!plan.hosts.empty())
    x.hosts = std::make_shared<const host_plan>(std::move(plan));
  return {};
}

/// How many other hosts there are for ranks.
expected<int> count_others(const launch_environment& found) {
  switch (found.engine) {
    case launch_engine::ssh:
    case launch_engine::slurm:
      return static_cast<int>(found.hosts.size()) - (found.host_index ? 1 : 0);
    case launch_engine::tickets:
      return found.agents;
    case launch_engine::mpi: {
      TROUPE_TRY(auto hosts, mpi_host_count());
      return hosts - 1;
    }
    case launch_engine::none:
      break;
  }
  return 0;
}

/// For ranks of this process: refuses other hosts that are given, and counts
/// those that were found.
expected<void> leave_hosts(run_request& x) {
  auto hosts = text_of_hosts(x.scaling);
  auto found = found_launch(hosts);
  if (!found) {
    // Other contradictions do not matter: nothing depends on them.
    if (has_given_hosts(hosts))
      return tl::unexpected{found.error()};
    return {};
  }
  // The same holds for their number, if mpirun does not say it.
  x.unused_hosts = count_others(*found).value_or(0);
  if (found->engine != launch_engine::ssh || x.unused_hosts == 0)
    return {};
  std::vector<std::string> names;
  for (auto& host : found->hosts)
    names.push_back(host.name);
  return failure(ec::invalid_config,
                 concat(names.size() == 1 ? "the host " : "the hosts ",
                        to_short_text(names),
                        names.size() == 1 ? " is given" : " are given",
                        x.scaling.num_workers == 0
                          ? ", but with scaling.num_workers = 0 the loop runs "
                            "inline"
                          : ", but ranks are threads of this process",
                        ": other hosts have ranks that are processes only"));
}

} // namespace

expected<void> find_hosts(run_request& x) {
  auto& scaling = x.scaling;
  if (x.hosts)
    return {};
  if (runs_here(scaling))
    return leave_hosts(x);
  TROUPE_TRY_VOID(validate(scaling.num_workers));
  auto found = found_launch(text_of_hosts(scaling));
  if (found)
    TROUPE_TRY_VOID(take_agents(x, *found));
  TROUPE_TRY_VOID(validate_counts(scaling));
  if (scaling.agents > 0) {
    // Other contradictions do not matter: nothing else decides.
    if (!found)
      TROUPE_TRY_VOID(expect_pmix(own_environment()));
    scaling.num_workers = ranks_with_agents(scaling);
    if (!scaling.num_workers.is_elastic())
      x.unused_hosts = static_cast<int>(
        std::ranges::count(spread_ranks(scaling), 0, &host_share::ranks));
    return {};
  }
  if (!found)
    return tl::unexpected{found.error()};
  if (found->engine == launch_engine::ssh
      || found->engine == launch_engine::slurm)
    return plan_launch(x, *found);
  if (scaling.workers_per_host > 0)
    scaling.num_workers = scaling.workers_per_host;
  return {};
}

std::vector<host_share> shares_of(const run_request& x) {
  if (!x.hosts)
    return spread_ranks(x.scaling);
  std::vector<host_share> result;
  for (auto& host : x.hosts->hosts)
    result.push_back({host.first_rank, host.ranks});
  return result;
}

std::vector<int> slots_of(const run_request& x) {
  std::vector<int> result;
  if (x.hosts) {
    for (auto& host : x.hosts->hosts)
      result.push_back(host.slots);
    return result;
  }
  // As evenly as in the largest world.
  auto shares = spread_ranks(x.scaling);
  result.assign(shares.size(), shares.front().ranks);
  return result;
}

std::optional<std::string> visible_devices_of(const run_request& x) {
  constexpr auto name = "CUDA_VISIBLE_DEVICES";
  if (runs_here(x.scaling))
    return own_visible_devices();
  if (auto own = x.run.worker_env.find(name); own != x.run.worker_env.end())
    return own->second;
  if (!x.inherited)
    return own_visible_devices();
  auto inherited = x.inherited->find(name);
  return inherited ? std::optional<std::string>{*inherited} : std::nullopt;
}

expected<void> validate(const run_request& x) {
  TROUPE_TRY_VOID(validate(x.scaling, resources_for(x), shares_of(x)));
  if (auto agents = x.scaling.agents;
      !x.has_found_agents && agents > 0 && x.scaling.num_workers <= agents)
    return failure(ec::invalid_config,
                   concat("scaling.agents is ", agents,
                          ", so that the run has ", agents + 1,
                          " hosts, but only ",
                          counted(x.scaling.num_workers.max, "worker")));
  TROUPE_TRY_VOID(validate(x.run));
  if (x.scaling.agents > 0 && x.run.agent_ticket.empty() && x.tickets.empty()
      && !x.publishes_ticket)
    return failure(ec::invalid_config,
                   "scaling.agents asks for other hosts: run.agent_ticket must "
                   "name a file for the ticket with which their agents reach "
                   "this one");
  auto has_ranks = [](const host_share& share) { return share.ranks > 0; };
  if (auto hosts = std::ranges::count_if(shares_of(x), has_ranks);
      x.scaling.max_hosts > hosts && x.run.agent_ticket.empty())
    return failure(ec::invalid_config,
                   concat("scaling.max_hosts is ", x.scaling.max_hosts,
                          ", but the run has ", counted(hosts, "host"),
                          ": run.agent_ticket must name a file for the "
                          "ticket with which more may come"));
  if (x.loop.problem)
    return tl::unexpected{x.loop.problem};
  for (auto& callback : x.run.callbacks)
    if (!callback)
      return failure(ec::invalid_config, "run.callbacks has a null pointer");
  for (auto& tracker : x.run.trackers)
    if (!tracker)
      return failure(ec::invalid_config, "run.trackers has a null pointer");
  for (auto& actor : x.run.callback_actors)
    if (!actor)
      return failure(ec::invalid_config,
                     "run.callback_actors has a null pointer");
  if (runs_here(x.scaling))
    return {};
  if (x.loop.closure)
    return failure(ec::invalid_config,
                   "an in_process_loop cannot run in processes: set "
                   "scaling.where to placement::in_process");
  if (x.loop.config.size() > max_config_bytes)
    return failure(ec::invalid_config,
                   concat("the config of the train loop has ",
                          x.loop.config.size(), " bytes, the limit is ",
                          max_config_bytes,
                          ": give it the path of a file that ranks read"));
  return refuse_closures(x.run.rank_hooks);
}

expected<prepared_request> prepare(const run_request& x) noexcept {
  try {
    // A program may have closed one since `init`, or never have called it.
    TROUPE_TRY_VOID(open_standard_descriptors());
    prepared_request result{x};
    TROUPE_TRY_VOID(find_hosts(result));
    TROUPE_TRY_VOID(validate(result));
    result.run = resolve(std::move(result.run));
    return result;
  } catch (...) {
    return tl::unexpected{caught("the run could not be prepared")};
  }
}

} // namespace troupe::internal
