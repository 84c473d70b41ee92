#include "troupe/trainers/sweep/sweep_plan.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "troupe/callbacks/tracking/tracker.hpp"
#include "troupe/runtime/config/rank_shares.hpp"
#include "troupe/runtime/process/inheritance.hpp"
#include "troupe/runtime/process/spawner_connection.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/trainers/launch.hpp"

namespace troupe::internal {

namespace {

std::string text_of(const metric_value& x) {
  if (auto text = std::get_if<std::string>(&x.variant()))
    return *text;
  std::string result;
  append_scalar(
    result, x.variant(), [&](double number) { append_plain(result, number); },
    [](std::string_view) {});
  return result;
}

field_texts texts_of(const metrics& params) {
  field_texts result;
  for (auto& [name, value] : params)
    result.emplace_back(name, text_of(value));
  return result;
}

/// The ranks of a trial, which has this host alone.
int ranks_of_trial(const scaling_config& x) {
  return x.workers_per_host > 0 && !runs_here(x) ? x.workers_per_host
                                                 : world_size_of(x);
}

/// How many trials of *request* fit onto this host at once, but no more than
/// *limit*.
int concurrency(const run_request& request, const std::optional<int>& limit) {
  auto host = resources_for(request);
  auto& x = request.scaling;
  auto ranks = ranks_of_trial(x);
  auto each = x.resources_per_worker.cpus.value_or(1) * ranks;
  auto most = each > 0 ? std::floor(host.cpus / each) : host.cpus;
  auto result = limit.value_or(static_cast<int>(most));
  // Ranks share cores, but no GPU.
  if (auto gpus = static_cast<int>(claim_of(x).gpus) * ranks; gpus > 0)
    result = std::min(result, static_cast<int>(host.gpus) / gpus);
  return std::max(result, 1);
}

expected<void> check_options(const sweep_options& x, const searcher& chooser) {
  auto refuse = [](std::string what) {
    return failure(ec::invalid_config, "sweep_options::" + std::move(what));
  };
  if (x.metric.empty())
    return refuse("metric is empty: name what trials are compared by");
  if (x.trials && *x.trials < 1)
    return refuse(concat("trials must be >= 1 or unset, got ", *x.trials));
  if (!x.trials && !chooser.is_finite())
    return refuse("trials is unset, but the searcher (" + chooser.name()
                  + ") never ends by itself");
  if (x.max_concurrent && *x.max_concurrent < 1)
    return refuse(
      concat("max_concurrent must be >= 1 or unset, got ", *x.max_concurrent));
  if (x.max_failed_trials && *x.max_failed_trials < 1)
    return refuse(concat("max_failed_trials must be >= 1 or unset, got ",
                         *x.max_failed_trials));
  if (!x.halving)
    return {};
  return internal::validate(*x.halving);
}

/// Refuses a range of real numbers for a field that takes integers: both ends
/// may be integers, what is between them is not.
expected<void> check_fractions(const search_param& x, const train_loop& loop) {
  if (x.range.kind != param_range::kind_type::real)
    return {};
  auto fits = [&](const metric_value& value) {
    return loop.changed({{x.name, text_of(value)}}, false).has_value();
  };
  for (auto place : {0.382, 0.618}) {
    auto value = std::get<double>(value_at(x.range, place).variant());
    auto whole = std::trunc(value);
    if (value == whole || fits(value) || !fits(whole))
      continue;
    auto prefix = x.range.is_log ? "log_" : "";
    return failure(ec::invalid_config, concat("the param '", x.name,
                                              "' of the sweep is an "
                                              "integer field, but ",
                                              prefix,
                                              "uniform chooses "
                                              "numbers such as ",
                                              to_string(metric_value{value}),
                                              ": use ", prefix, "integers"));
  }
  return {};
}

/// Refuses a space whose values do not fit into the fields of the loop's
/// config.
expected<void> check_fields(const search_space& space, const train_loop& loop) {
  if (!loop.changed)
    return failure(ec::invalid_config,
                   "the config of the train loop has no named fields for the "
                   "params of a sweep: add TROUPE_FIELDS to it");
  for (auto& param : space) {
    TROUPE_TRY_VOID(check_fractions(param, loop));
    for (auto& value : grid_values(param.range, 2))
      if (auto ok = loop.changed({{param.name, text_of(value)}}, false); !ok)
        return failure(ec::invalid_config,
                       "the param '" + param.name
                         + "' of the sweep: " + ok.error().message);
  }
  return {};
}

/// Refuses other hosts, given or found: trials are spread over the cores of
/// this one.
expected<void> check_hosts(const run_request& x) {
  auto refuse = [](const std::string& what) {
    return failure(ec::invalid_config,
                   concat("the trials of a sweep run on this host, but ", what,
                          ": start the sweep on one host, or one run on all"));
  };
  // As given: the plan has those alone that one run would use.
  std::vector<std::string> names;
  if (x.hosts || x.unused_hosts > 0)
    if (auto found = found_launch(text_of_hosts(x.scaling)))
      for (auto& host : found->hosts)
        names.push_back(host.name);
  if (!names.empty())
    return refuse(
      concat(names.size() == 1 ? "there is the host " : "there are the hosts ",
             joined(names)));
  // Those that ranks of this process leave unused are no agents of the run.
  if (auto n = std::max(x.scaling.agents, x.unused_hosts); n > 0)
    return refuse(concat("agents of ", n, " other hosts are to join"));
  if (!x.run.agent_ticket.empty())
    return refuse("agent_ticket lets other hosts join");
  return {};
}

/// Refuses what a single run does with a finished one of its name: a sweep is
/// resumed.
expected<void> check_run(const run_config& x) {
  if (x.if_finished == if_finished::refuse)
    return {};
  return failure(ec::invalid_config,
                 "run_config::if_finished must be `refuse` for a sweep, which "
                 "is resumed if one of its name is there: for a new one, "
                 "choose another name");
}

/// Refuses what cannot serve several runs at once.
expected<void> check_sharing(const run_request& x, int at_once) {
  if (at_once <= 1)
    return {};
  auto refuse = [&](const std::string& what) {
    return failure(ec::invalid_config,
                   concat(what, " serves one run at a time, but up to ",
                          at_once,
                          " trials run at once: give each its own with "
                          "sweep_options::prepare, or set max_concurrent to "
                          "1"));
  };
  if (!x.run.callbacks.empty())
    return refuse("a callback");
  for (auto& tracker : x.run.trackers)
    if (!tracker->another())
      return refuse("the tracker " + tracker->target()->name());
  return {};
}

} // namespace

sweep_plan::sweep_plan(const run_request& request, const search_space& space,
                       const sweep_options& options)
  : request_(request), space_(space), options_(options),
    searcher_(options.searcher ? options.searcher : random_search()) {}

expected<void> sweep_plan::check() {
  TROUPE_TRY_VOID(internal::validate(space_));
  TROUPE_TRY_VOID(check_options(options_, *searcher_));
  TROUPE_TRY_VOID(searcher_->validate(space_));
  TROUPE_TRY_VOID(check_run(request_.run));
  auto found = request_;
  TROUPE_TRY_VOID(find_hosts(found));
  TROUPE_TRY_VOID(check_hosts(found));
  TROUPE_TRY_VOID(internal::validate(found));
  TROUPE_TRY_VOID(check_fields(space_, request_.loop));
  TROUPE_TRY_VOID(check_sharing(request_, at_once()));
  // Without a spawner, the first trial says so.
  if (auto spawns = spawner(); spawns && !runs_here(request_.scaling)) {
    TROUPE_TRY(inherited_, inherit((*spawns)->variables()));
  }
  return {};
}

int sweep_plan::at_once() const {
  return concurrency(request_, options_.max_concurrent);
}

std::optional<std::size_t> sweep_plan::trials() const {
  auto chosen = searcher_->count(space_);
  if (!options_.trials)
    return chosen;
  auto wanted = static_cast<std::size_t>(*options_.trials);
  return std::min(wanted, chosen.value_or(wanted));
}

expected<train_loop> sweep_plan::loop_for(const trial& x) const {
  return request_.loop.changed(texts_of(x.params), true);
}

expected<run_request> sweep_plan::request_for(const trial& x, train_loop loop,
                                              const fs::path& path,
                                              int at_once) const {
  auto result = request_;
  result.loop = std::move(loop);
  result.inherited = inherited_;
  if (claim_of(request_.scaling).cpus <= 0)
    result.runs_at_once = at_once;
  auto& run = result.run;
  for (auto& tracker : run.trackers)
    if (auto mine = tracker->another())
      tracker = std::move(mine);
  TROUPE_TRY_VOID(prepare(x, run));
  run.name = x.name;
  run.storage_path = path;
  run.if_finished = if_finished::refuse;
  run.quiet = true;
  if (options_.halving && options_.halving->max_reports) {
    auto most = *options_.halving->max_reports;
    run.stop.reports = std::min(run.stop.reports.value_or(most), most);
  }
  return result;
}

expected<void> sweep_plan::prepare(const trial& x, run_config& run) const {
  try {
    if (options_.prepare)
      options_.prepare(x, run);
    return {};
  } catch (...) {
    return tl::unexpected{caught(x.name + ": sweep_options::prepare threw")};
  }
}

fs::path sweep_plan::storage_path() const {
  return resolve(request_.run).storage_path;
}

sweep_description sweep_plan::description() const {
  sweep_description result;
  result.name = request_.run.name.value_or("");
  result.space = space_text(space_);
  result.searcher = searcher_->name();
  return result;
}

sweep_start sweep_plan::start() const {
  sweep_start result;
  result.metric = options_.metric;
  result.order = options_.order;
  result.trials = options_.trials;
  result.config = fixed_config();
  return result;
}

std::string sweep_plan::fixed_config() const {
  metrics params;
  for (auto& param : space_)
    params[param.name] = grid_values(param.range, 2).front();
  auto loop = request_.loop.changed(texts_of(params), false);
  return loop ? loop->config_text : std::string{};
}

sweep_rules sweep_plan::rules() const {
  return {options_.metric, options_.order, options_.trials,
          options_.max_failed_trials, options_.retry_failed};
}

} // namespace troupe::internal
