#include "troupe/callbacks/mlflow/mlflow_server.hpp"

#include <algorithm>

#include "troupe/callbacks/encoding/percent.hpp"
#include "troupe/callbacks/http/http_client.hpp"
#include "troupe/callbacks/mlflow/mlflow_files.hpp"
#include "troupe/runtime/process/secrets.hpp"
#include "troupe/runtime/storage/json.hpp"

namespace troupe::internal {

namespace {

using kind = sink_failure::kind;

// What follows the scheme and the host of *uri*, without leading and trailing
// slashes.
std::string path_of(const std::string& uri) {
  auto begin = uri.find(':') + 1;
  if (uri.compare(begin, 2, "//") == 0)
    begin = std::min(uri.find('/', begin + 2), uri.size());
  auto result = uri.substr(begin);
  while (result.starts_with('/'))
    result.erase(0, 1);
  while (result.ends_with('/'))
    result.pop_back();
  return result;
}

bool has_scheme(const std::string& uri) {
  return uri.find(':') < uri.find('/');
}

tl::unexpected<sink_failure> permanent(std::string sentence) {
  return sink_fails(kind::permanent, {ec::protocol, std::move(sentence)});
}

tl::unexpected<sink_failure> permanent(const sink_failure& x) {
  auto result = x;
  if (result.what == kind::rejected)
    result.what = kind::permanent;
  return tl::unexpected{result};
}

// The failure of a call without which nothing can be logged: what is refused
// now will be refused again.
tl::unexpected<sink_failure> unusable(const mlflow_refusal& x) {
  return permanent(x.failure);
}

// The text at *pointer*; empty if there is none.
std::string text_at(const json::document& x, const char* pointer) {
  const json::document::json_pointer at{pointer};
  if (!x.is_structured() || !x.contains(at) || !x[at].is_string())
    return {};
  return x[at].get<std::string>();
}

json::document pairs_json(std::span<const mlflow_pair> pairs) {
  auto result = json::document::array();
  for (auto& x : pairs)
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

} // namespace

void mlflow_artifacts::use(std::string run_id, std::string root) {
  run_id_ = std::move(run_id);
  root_ = std::move(root);
}

sink_result mlflow_artifacts::put(const fs::path& file,
                                  const std::string& name) {
  if (root_.starts_with("mlflow-artifacts:")) {
    auto path = "/api/2.0/mlflow-artifacts/artifacts/"
                + percent_encoded(path_of(root_) + "/" + name, "/");
    if (auto ok = client_.put(path, file); !ok)
      return not_stored(ok.error().failure);
    return {};
  }
  if (root_.starts_with("dbfs:"))
    return put_signed(file, name);
  if (root_.starts_with("file:") || !has_scheme(root_)) {
    fs::path root = has_scheme(root_) ? "/" + path_of(root_) : root_;
    return copy_artifact(file, root / name);
  }
  return sink_fails(
    kind::rejected,
    {ec::unsupported, "the artifacts of the run are in " + shown_url(root_)
                        + ", which only the server can write to: start it with "
                          "--serve-artifacts --artifacts-destination"});
}

sink_result mlflow_artifacts::put_signed(const fs::path& file,
                                         const std::string& name) {
  const json::document question{{"run_id", run_id_}, {"path", {name}}};
  auto answer =
    client_.post("artifacts/credentials-for-write", json::text_of(question));
  if (!answer)
    return not_stored(answer.error().failure);
  http_request request{.method = "PUT", .file = file};
  try {
    auto info = json::document::parse(*answer).at("credential_infos").at(0);
    request.url = info.at("signed_uri").get<std::string>();
    if (info.contains("headers"))
      for (auto& x : info["headers"])
        request.headers.emplace_back(x.at("name").get<std::string>(),
                                     x.at("value").get<std::string>());
    if (info.value("type", "").starts_with("AZURE_SAS"))
      request.headers.emplace_back("x-ms-blob-type", "BlockBlob");
  } catch (const json::document::exception&) {
    return sink_fails(kind::rejected,
                      {ec::protocol, "MLflow returned no signed URL for the "
                                     "artifact "
                                       + name});
  }
  if (auto ok = client_.send_plain(request); !ok) {
    auto failed = ok.error().failure;
    // The signed URL may have expired; the next attempt gets a new one.
    if (failed.what == kind::permanent)
      failed.what = kind::transient;
    return not_stored(failed);
  }
  return {};
}

// Metrics must not wait for ever behind an artifact: a bucket may let no one
// in, a proxy may give up on long uploads. If the server answers other calls,
// the record may be the reason.
tl::unexpected<sink_failure> mlflow_artifacts::not_stored(sink_failure x) {
  if (x.what != kind::rejected && x.reason.code != ec::stopped
      && client_.get("runs/get?run_id=" + percent_encoded(run_id_))) {
    x.what = kind::transient;
    x.suspect = true;
    x.reason.code = ec::storage; // It is not the server that fails.
  }
  return tl::unexpected{std::move(x)};
}

mlflow_server::mlflow_server(mlflow_settings settings,
                             std::stop_token cancelled)
  : client_(std::move(settings), std::move(cancelled)), artifacts_(client_) {}

sink_result mlflow_server::open(const mlflow_run& run,
                                const std::string& state) {
  run_ = run;
  id_.clear();
  params_.clear();
  tags_.clear();
  is_given_ = false;
  auto saved = json::parse(state);
  auto known = state.empty() ? run.run_id : text_at(saved, "/run_id");
  if (!known.empty()) {
    TROUPE_TRY(auto usable, load_run(known));
    if (usable) {
      is_given_ = known == run.run_id
                  || (saved.is_object() && saved.value("given", false));
      return resume();
    }
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
  TROUPE_TRY_VOID(load_run(*lost));
  return resume();
}

mlflow_server::found mlflow_server::find_experiment() {
  if (!run_.experiment_id.empty()) {
    auto reply = client_.get("experiments/get?experiment_id="
                             + percent_encoded(run_.experiment_id));
    if (!reply)
      return unusable(reply.error());
    return run_.experiment_id;
  }
  if (client_.settings().databricks && !run_.experiment.starts_with('/'))
    return permanent("the experiment '" + run_.experiment
                     + "' is not an absolute path, which Databricks requires: "
                       "give one like /Shared/<name> in "
                       "MLFLOW_EXPERIMENT_NAME or the option `experiment`");
  auto id = experiment_by_name();
  if (!id || !id->empty())
    return id;
  return make_experiment();
}

mlflow_server::found mlflow_server::experiment_by_name() {
  auto reply = client_.get("experiments/get-by-name?experiment_name="
                           + percent_encoded(run_.experiment));
  if (!reply && reply.error().is_missing())
    return std::string{};
  if (!reply)
    return unusable(reply.error());
  auto x = json::parse(*reply);
  if (text_at(x, "/experiment/lifecycle_stage") == "deleted")
    return permanent("MLflow's experiment '" + run_.experiment
                     + "' is deleted: restore it or name another one in "
                       "MLFLOW_EXPERIMENT_NAME or the option `experiment`");
  auto id = text_at(x, "/experiment/experiment_id");
  if (id.empty())
    return permanent(not_mlflow(client_.settings()));
  return id;
}

mlflow_server::found mlflow_server::make_experiment() {
  auto reply = client_.post("experiments/create",
                            json::text_of({{"name", run_.experiment}}));
  if (!reply && reply.error().already_exists()) // Another run was first.
    return experiment_by_name();
  if (!reply)
    return unusable(reply.error());
  return text_at(json::parse(*reply), "/experiment_id");
}

mlflow_server::found mlflow_server::find_run(const std::string& experiment_id) {
  auto reply = client_.post(
    "runs/search",
    json::text_of({{"experiment_ids", {experiment_id}},
                   {"filter", "tags.`troupe.run_uid` = '" + run_.uid + "'"},
                   {"max_results", 1}}));
  if (!reply)
    return unusable(reply.error());
  return text_at(json::parse(*reply), "/runs/0/info/run_id");
}

sink_result mlflow_server::make_run(const std::string& experiment_id,
                                    const std::string& replaced) {
  auto tags = run_.tags;
  if (!replaced.empty())
    tags.push_back({"troupe.replaces", replaced});
  auto reply = client_.post("runs/create",
                            json::text_of({{"experiment_id", experiment_id},
                                           {"start_time", run_.start_ms},
                                           {"run_name", run_.name},
                                           {"user_id", run_.user},
                                           {"tags", pairs_json(tags)}}),
                            false);
  if (!reply)
    return unusable(reply.error());
  auto x = json::parse(*reply);
  id_ = text_at(x, "/run/info/run_id");
  if (id_.empty())
    return permanent(not_mlflow(client_.settings()));
  artifacts_.use(id_, text_at(x, "/run/info/artifact_uri"));
  return {};
}

tl::expected<bool, sink_failure>
mlflow_server::load_run(const std::string& id) {
  auto reply = client_.get("runs/get?run_id=" + percent_encoded(id));
  if (!reply && reply.error().is_missing())
    return false;
  if (!reply)
    return unusable(reply.error());
  auto x = json::parse(*reply);
  if (text_at(x, "/run/info/run_id") != id)
    return permanent(not_mlflow(client_.settings()));
  if (text_at(x, "/run/info/lifecycle_stage") == "deleted")
    return false;
  id_ = id;
  artifacts_.use(id, text_at(x, "/run/info/artifact_uri"));
  const json::document::json_pointer params{"/run/data/params"};
  if (x.contains(params))
    for (auto& param : x[params])
      params_[text_at(param, "/key")] = text_at(param, "/value");
  const json::document::json_pointer tags{"/run/data/tags"};
  if (x.contains(tags))
    for (auto& tag : x[tags])
      tags_.insert(text_at(tag, "/key"));
  return true;
}

sink_result mlflow_server::resume() {
  auto reply = client_.post(
    "runs/update", json::text_of({{"run_id", id_}, {"status", "RUNNING"}}));
  if (!reply)
    return unusable(reply.error());
  return set_tags(own_tags());
}

// A run that someone else created keeps its name, user and source.
std::vector<mlflow_pair> mlflow_server::own_tags() const {
  auto result = run_.tags;
  if (is_given_)
    std::erase_if(result, [this](const mlflow_pair& x) {
      return x.key.starts_with("mlflow.") && tags_.contains(x.key);
    });
  return result;
}

sink_result mlflow_server::send(const mlflow_body& body) {
  if (auto reply = client_.post("runs/log-batch", body.json); !reply)
    return tl::unexpected{lost_run(reply.error())};
  return {};
}

// If the run was deleted, creates a new one for the next attempt.
sink_failure mlflow_server::lost_run(const mlflow_refusal& x) {
  auto result = x.failure;
  if (x.status != 400 && !x.is_missing())
    return result;
  auto old = id_;
  auto usable = load_run(old);
  if (!usable || *usable)
    return usable ? result : usable.error();
  std::vector<mlflow_pair> params;
  for (auto& [key, value] : params_)
    params.push_back({key, value});
  if (auto ok = open(run_, state()); !ok)
    return ok.error();
  std::erase_if(params, [&](auto& p) { return params_.contains(p.key); });
  if (auto ok = log_params(params); !ok)
    return ok.error();
  result.what = kind::transient;
  result.reason.message =
    "MLflow's run " + old + " was deleted; run " + id_ + " replaces it";
  return result;
}

sink_result mlflow_server::log_metrics(std::span<const mlflow_metric> metrics) {
  std::size_t accepted = 0;
  for (auto& body : metric_bodies(id_, metrics)) {
    auto ok = send(body);
    if (!ok) {
      ok.error().accepted = accepted;
      return ok;
    }
    accepted += body.items;
  }
  return {};
}

sink_result mlflow_server::log_params(std::span<const mlflow_pair> params) {
  for (auto& body : param_bodies(id_, params))
    TROUPE_TRY_VOID(send(body));
  for (auto& x : params)
    params_[x.key] = x.value;
  return {};
}

sink_result mlflow_server::set_tags(std::span<const mlflow_pair> tags) {
  for (auto& body : tag_bodies(id_, tags))
    TROUPE_TRY_VOID(send(body));
  return {};
}

sink_result mlflow_server::put_file(const fs::path& file,
                                    const std::string& name) {
  return artifacts_.put(file, name);
}

sink_result mlflow_server::end(run_status_kind status, std::int64_t time_ms) {
  auto reply =
    client_.post("runs/update", json::text_of({{"run_id", id_},
                                               {"status", status_text(status)},
                                               {"end_time", time_ms}}));
  if (!reply)
    return tl::unexpected{reply.error().failure};
  return {};
}

std::string mlflow_server::state() const {
  if (id_.empty())
    return {};
  auto result = json::document::object();
  result["run_id"] = id_;
  if (is_given_) // The next process may lack MLFLOW_RUN_ID.
    result["given"] = true;
  return json::text_of(result);
}

} // namespace troupe::internal
