#include "troupe/callbacks/mlflow/mlflow_server.hpp"

#include <nlohmann/json.hpp>

#include "troupe/callbacks/http/http_text.hpp"

namespace troupe {

namespace {

using json = nlohmann::json;
using kind = sink_failure::kind;

tl::unexpected<sink_failure> permanent(std::string sentence) {
  return sink_fails(kind::permanent, {ec::protocol, std::move(sentence)});
}

tl::unexpected<sink_failure> permanent(const sink_failure& x) {
  auto result = x;
  if (result.what == kind::rejected)
    result.what = kind::permanent;
  return tl::unexpected{result};
}

/// Of a call without which nothing can be logged: what is refused now will be
/// refused again.
tl::unexpected<sink_failure> unusable(const mlflow_refusal& x) {
  return permanent(x.failure);
}

std::string dump(const json& x) {
  return x.dump(-1, ' ', false, json::error_handler_t::replace);
}

json parse(const std::string& text) {
  return json::parse(text, nullptr, false);
}

/// The text at *pointer*; empty if there is none.
std::string text_at(const json& x, const char* pointer) {
  const json::json_pointer at{pointer};
  if (!x.is_structured() || !x.contains(at) || !x[at].is_string())
    return {};
  return x[at].get<std::string>();
}

json pairs_json(std::span<const mlflow_pair> pairs) {
  auto result = json::array();
  for (const auto& x : pairs)
    result.push_back({{"key", x.key}, {"value", x.value}});
  return result;
}

const char* status_text(run_status_kind x) {
  switch (x) {
    case run_status_kind::finished:
      return "FINISHED";
    case run_status_kind::errored:
      return "FAILED";
    case run_status_kind::aborted:
    case run_status_kind::preempted:
      return "KILLED";
    case run_status_kind::running:
      break;
  }
  return "RUNNING";
}

/// What a server says that is none of MLflow's.
std::string stranger(const mlflow_settings& x) {
  return x.server
         + " does not answer as MLflow does: is MLFLOW_TRACKING_URI right?";
}

} // namespace

mlflow_server::mlflow_server(mlflow_settings settings,
                             std::stop_token cancelled)
  : api_(std::move(settings), std::move(cancelled)), artifacts_(api_) {}

sink_result mlflow_server::open(const mlflow_run& run,
                                const std::string& state) {
  run_ = run;
  id_.clear();
  params_.clear();
  auto known = state.empty() ? run.run_id : text_at(parse(state), "/run_id");
  if (!known.empty()) {
    auto usable = load_run(known);
    if (!usable)
      return tl::unexpected{usable.error()};
    if (*usable)
      return resume();
    if (state.empty())
      return permanent("MLflow has no run " + known
                       + " to log to: see run_id and MLFLOW_RUN_ID");
  }
  auto experiment = find_experiment();
  if (!experiment)
    return permanent(experiment.error());
  auto lost = find_run(*experiment);
  if (!lost)
    return permanent(lost.error());
  if (lost->empty())
    return make_run(*experiment, known);
  if (auto usable = load_run(*lost); !usable)
    return tl::unexpected{usable.error()};
  return resume();
}

mlflow_server::found mlflow_server::find_experiment() {
  if (!run_.experiment_id.empty()) {
    auto reply = api_.get("experiments/get?experiment_id="
                          + percent_encoded(run_.experiment_id));
    if (!reply)
      return unusable(reply.error());
    return run_.experiment_id;
  }
  if (api_.settings().databricks && !run_.experiment.starts_with('/'))
    return permanent("the experiment '" + run_.experiment
                     + "' is no absolute path, as Databricks wants it: name "
                       "one like /Shared/<name> in MLFLOW_EXPERIMENT_NAME or "
                       "the option `experiment`");
  auto id = experiment_by_name();
  if (!id || !id->empty())
    return id;
  return make_experiment();
}

mlflow_server::found mlflow_server::experiment_by_name() {
  auto reply = api_.get("experiments/get-by-name?experiment_name="
                        + percent_encoded(run_.experiment));
  if (!reply && reply.error().is_missing())
    return std::string{};
  if (!reply) {
    if (reply.error().status == 404)
      return permanent(stranger(api_.settings()));
    return unusable(reply.error());
  }
  auto x = parse(*reply);
  if (text_at(x, "/experiment/lifecycle_stage") == "deleted")
    return permanent("MLflow's experiment '" + run_.experiment
                     + "' is deleted: restore it or name another one in "
                       "MLFLOW_EXPERIMENT_NAME or the option `experiment`");
  auto id = text_at(x, "/experiment/experiment_id");
  if (id.empty())
    return permanent(stranger(api_.settings()));
  return id;
}

mlflow_server::found mlflow_server::make_experiment() {
  auto reply =
    api_.post("experiments/create", dump({{"name", run_.experiment}}));
  if (!reply && reply.error().already_exists()) // Another run was faster.
    return experiment_by_name();
  if (!reply)
    return unusable(reply.error());
  return text_at(parse(*reply), "/experiment_id");
}

mlflow_server::found mlflow_server::find_run(const std::string& experiment_id) {
  auto reply =
    api_.post("runs/search",
              dump({{"experiment_ids", {experiment_id}},
                    {"filter", "tags.`troupe.run_uid` = '" + run_.uid + "'"},
                    {"max_results", 1}}));
  if (!reply)
    return unusable(reply.error());
  return text_at(parse(*reply), "/runs/0/info/run_id");
}

sink_result mlflow_server::make_run(const std::string& experiment_id,
                                    const std::string& replaced) {
  auto tags = run_.tags;
  if (!replaced.empty())
    tags.push_back({"troupe.replaces", replaced});
  auto reply = api_.post("runs/create",
                         dump({{"experiment_id", experiment_id},
                               {"start_time", run_.start_ms},
                               {"run_name", run_.name},
                               {"user_id", run_.user},
                               {"tags", pairs_json(tags)}}),
                         false);
  if (!reply)
    return unusable(reply.error());
  auto x = parse(*reply);
  id_ = text_at(x, "/run/info/run_id");
  if (id_.empty())
    return permanent(stranger(api_.settings()));
  artifacts_.use(id_, text_at(x, "/run/info/artifact_uri"));
  return {};
}

tl::expected<bool, sink_failure>
mlflow_server::load_run(const std::string& id) {
  auto reply = api_.get("runs/get?run_id=" + percent_encoded(id));
  if (!reply && reply.error().is_missing())
    return false;
  if (!reply)
    return unusable(reply.error());
  auto x = parse(*reply);
  if (text_at(x, "/run/info/run_id") != id)
    return permanent(stranger(api_.settings()));
  if (text_at(x, "/run/info/lifecycle_stage") == "deleted")
    return false;
  id_ = id;
  artifacts_.use(id, text_at(x, "/run/info/artifact_uri"));
  const json::json_pointer params{"/run/data/params"};
  if (x.contains(params))
    for (const auto& param : x[params])
      params_[text_at(param, "/key")] = text_at(param, "/value");
  return true;
}

sink_result mlflow_server::resume() {
  auto reply =
    api_.post("runs/update", dump({{"run_id", id_}, {"status", "RUNNING"}}));
  if (!reply)
    return unusable(reply.error());
  return set_tags(run_.tags);
}

sink_result mlflow_server::send(std::span<const mlflow_body> bodies) {
  std::size_t accepted = 0;
  for (const auto& body : bodies) {
    if (auto reply = api_.post("runs/log-batch", body.json); !reply) {
      auto failed = lost_run(reply.error());
      failed.accepted = accepted;
      return tl::unexpected{failed};
    }
    accepted += body.items;
  }
  return {};
}

/// Somebody may have deleted the run: then the next attempt goes to a new one.
sink_failure mlflow_server::lost_run(const mlflow_refusal& x) {
  auto result = x.failure;
  if (x.status != 400 && !x.is_missing())
    return result;
  auto old = id_;
  auto usable = load_run(old);
  if (!usable || *usable)
    return usable ? result : usable.error();
  std::vector<mlflow_pair> params;
  for (const auto& [key, value] : params_)
    params.push_back({key, value});
  if (auto ok = open(run_, state()); !ok)
    return ok.error();
  std::erase_if(params, [&](auto& p) { return params_.contains(p.key); });
  if (auto ok = log_params(params); !ok)
    return ok.error();
  result.what = kind::transient;
  result.reason.message = "somebody deleted MLflow's run " + old + "; run "
                          + id_ + " takes its place";
  return result;
}

sink_result mlflow_server::log_metrics(std::span<const mlflow_metric> metrics) {
  return send(metric_bodies(id_, metrics));
}

sink_result mlflow_server::log_params(std::span<const mlflow_pair> params) {
  if (auto ok = send(param_bodies(id_, params)); !ok)
    return ok;
  for (const auto& x : params)
    params_[x.key] = x.value;
  return {};
}

sink_result mlflow_server::set_tags(std::span<const mlflow_pair> tags) {
  return send(tag_bodies(id_, tags));
}

sink_result mlflow_server::put_file(const fs::path& file,
                                    const std::string& name) {
  return artifacts_.put(file, name);
}

sink_result mlflow_server::end(run_status_kind status, std::int64_t time_ms) {
  auto reply = api_.post("runs/update", dump({{"run_id", id_},
                                              {"status", status_text(status)},
                                              {"end_time", time_ms}}));
  if (!reply)
    return tl::unexpected{reply.error().failure};
  return {};
}

std::string mlflow_server::state() const {
  return id_.empty() ? std::string{} : dump({{"run_id", id_}});
}

} // namespace troupe
