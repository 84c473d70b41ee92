#include "troupe/callbacks/mlflow/mlflow_client.hpp"

#include <algorithm>
#include <string_view>

#include "troupe/callbacks/tracking/http_failure.hpp"
#include "troupe/runtime/process/secrets.hpp"
#include "troupe/runtime/storage/json.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

json::ordered_document item_of(const mlflow_metric& x) {
  return {{"key", x.key},
          {"value", json::value_of(x.value)},
          {"timestamp", x.time_ms},
          {"step", x.step}};
}

json::ordered_document item_of(const mlflow_pair& x) {
  return {{"key", x.key}, {"value", x.value}};
}

// At most *max_items* per object `{"run_id":…,"<field>":[…]}`.
template <class T>
std::vector<mlflow_body> bodies(const std::string& run_id, const char* field,
                                std::span<const T> items, std::size_t max_items,
                                std::size_t max_bytes) {
  constexpr std::string_view end = "]}";
  auto none = json::ordered_document::array();
  auto begin = json::text_of({{"run_id", run_id}, {field, none}});
  begin.resize(begin.size() - end.size());
  std::vector<mlflow_body> result;
  for (auto& item : items) {
    auto text = json::text_of(item_of(item));
    if (result.empty() || result.back().items == max_items
        || result.back().json.size() + 1 + text.size() + end.size()
             > max_bytes) {
      if (!result.empty())
        result.back().json += end;
      result.push_back({begin, 0});
    }
    auto& body = result.back();
    if (body.items > 0)
      body.json += ',';
    body.json += text;
    ++body.items;
  }
  if (!result.empty())
    result.back().json += end;
  return result;
}

// The client's id and secret are sent as basic authentication.
http_options options_of(const mlflow_settings& x) {
  auto result = x.http;
  result.user = x.client_id;
  result.password = x.client_secret;
  result.token.clear();
  return result;
}

// `error_code` in *body*: everything that MLflow refuses has one.
std::string code_of(const std::string& body) {
  auto reply = json::parse(body);
  if (reply.is_object() && reply.contains("error_code")
      && reply["error_code"].is_string())
    return reply["error_code"].get<std::string>();
  return {};
}

std::string hint_for(const http_reply& x, const mlflow_settings& settings) {
  if (x.status == 403 && x.body.find("Invalid Host header") != x.body.npos)
    return "start the server with --allowed-hosts and the name in the address";
  if (x.status == 404 && code_of(x.body).empty())
    return not_mlflow(settings);
  if (x.status != 401 && x.status != 403)
    return {};
  if (settings.databricks)
    return "see DATABRICKS_HOST and DATABRICKS_TOKEN (or DATABRICKS_CLIENT_ID "
           "and DATABRICKS_CLIENT_SECRET), or the profile of the config file";
  if (x.status == 403)
    return "the user of MLFLOW_TRACKING_USERNAME or MLFLOW_TRACKING_TOKEN is "
           "not allowed to do this";
  return "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or "
         "MLFLOW_TRACKING_TOKEN, to credentials that the server accepts";
}

// Removes the server's own secrets from a failure, wherever they came from.
sink_failure without_secrets(sink_failure x, const mlflow_settings& settings) {
  for (auto& secret :
       {settings.http.password, settings.http.token, settings.client_secret})
    x.reason.message = redacted(x.reason.message, secret);
  return x;
}

} // namespace

std::string not_mlflow(const mlflow_settings& x) {
  return shown_url(x.server)
         + " does not answer as MLflow does: is MLFLOW_TRACKING_URI right?";
}

std::vector<mlflow_body> metric_bodies(const std::string& run_id,
                                       std::span<const mlflow_metric> metrics,
                                       const mlflow_limits& limits) {
  return bodies(run_id, "metrics", metrics, limits.metrics, limits.bytes);
}

std::vector<mlflow_body> param_bodies(const std::string& run_id,
                                      std::span<const mlflow_pair> params,
                                      const mlflow_limits& limits) {
  return bodies(run_id, "params", params, limits.pairs, limits.bytes);
}

std::vector<mlflow_body> tag_bodies(const std::string& run_id,
                                    std::span<const mlflow_pair> tags,
                                    const mlflow_limits& limits) {
  return bodies(run_id, "tags", tags, limits.pairs, limits.bytes);
}

mlflow_login::mlflow_login(const mlflow_settings& settings)
  : needed_(settings.databricks && settings.http.token.empty()),
    url_(settings.server + "/oidc/v1/token"), client_(options_of(settings)) {}

tl::expected<std::string, sink_failure>
mlflow_login::fetch(std::stop_token stop) {
  const http_request request{
    .method = "POST",
    .url = url_,
    .headers = {{"Content-Type", "application/x-www-form-urlencoded"}},
    .body = "grant_type=client_credentials&scope=all-apis"};
  auto reply = client_.send(request, std::move(stop));
  if (!reply)
    return tl::unexpected{failure_of(request, reply.error())};
  if (!reply->ok()) {
    auto author = json::parse(reply->body).is_object() ? reply_author::service
                                                       : reply_author::unknown;
    auto failed = failure_of(request, *reply, author,
                             "see DATABRICKS_CLIENT_ID and "
                             "DATABRICKS_CLIENT_SECRET");
    if (failed.what == sink_failure::kind::rejected)
      failed.what = sink_failure::kind::permanent;
    return tl::unexpected{failed};
  }
  auto answer = json::parse(reply->body);
  if (!answer.is_object() || !answer.contains("access_token")
      || !answer["access_token"].is_string())
    return sink_fails(
      sink_failure::kind::permanent,
      {ec::protocol, shown_url(url_) + " answered without a token"});
  auto lifetime =
    answer.contains("expires_in") && answer["expires_in"].is_number()
      ? answer["expires_in"].get<double>()
      : 3600.0;
  auto seconds = static_cast<long>(std::clamp(lifetime - 60, 0.0, 86400.0));
  due_ = clock::now() + std::chrono::seconds{seconds};
  return answer["access_token"].get<std::string>();
}

mlflow_client::mlflow_client(mlflow_settings settings,
                             std::stop_token cancelled)
  : settings_(std::move(settings)), cancelled_(std::move(cancelled)),
    client_(settings_.http), login_(settings_) {}

mlflow_client::reply mlflow_client::get(const std::string& what) {
  return call(
    {.method = "GET", .url = settings_.server + "/api/2.0/mlflow/" + what});
}

mlflow_client::reply mlflow_client::post(const std::string& what,
                                         std::string json, bool repeatable) {
  return call({.method = "POST",
               .url = settings_.server + "/api/2.0/mlflow/" + what,
               .headers = {{"Content-Type", "application/json"}},
               .body = std::move(json),
               .repeatable = repeatable});
}

mlflow_client::reply mlflow_client::call(http_request request) {
  auto result = send(std::move(request));
  if (!result || json::parse(*result).is_object())
    return result;
  sink_failure failure;
  failure.reason = {ec::protocol, not_mlflow(settings_)};
  failure.suspect = true;
  return tl::unexpected{mlflow_refusal{std::move(failure), 200, {}}};
}

mlflow_client::reply mlflow_client::put(const std::string& path,
                                        const fs::path& file) {
  return send({.method = "PUT", .url = settings_.server + path, .file = file});
}

mlflow_client::reply mlflow_client::send_plain(const http_request& request) {
  auto options = settings_.http;
  options.user.clear();
  options.password.clear();
  options.token.clear();
  http_client client{std::move(options)};
  return checked(request, client.send(request, cancelled_));
}

tl::expected<void, mlflow_refusal> mlflow_client::log_in() {
  auto token = login_.fetch(cancelled_);
  if (!token)
    return tl::unexpected{
      mlflow_refusal{without_secrets(token.error(), settings_), 0, {}}};
  client_.use_token(*token);
  return {};
}

mlflow_client::reply mlflow_client::send(http_request request) {
  auto is_due = login_.is_needed() && login_.is_due(mlflow_login::clock::now());
  if (is_due)
    TROUPE_TRY_VOID(log_in());
  request.timeout = settings_.timeout;
  if (!settings_.workspace.empty())
    request.headers.emplace_back("X-MLFLOW-WORKSPACE", settings_.workspace);
  auto result = checked(request, client_.send(request, cancelled_));
  // A token may be revoked, and expires while a host sleeps, whose clock stands
  // still then.
  if (result || result.error().status != 401 || !login_.is_needed() || is_due)
    return result;
  TROUPE_TRY_VOID(log_in());
  return checked(request, client_.send(request, cancelled_));
}

mlflow_client::reply mlflow_client::checked(const http_request& request,
                                            http_result result) {
  if (!result)
    return tl::unexpected{mlflow_refusal{
      without_secrets(failure_of(request, result.error()), settings_), 0, {}}};
  if (result->ok())
    return std::move(result->body);
  auto code = code_of(result->body);
  auto author = code.empty() ? reply_author::unknown : reply_author::service;
  auto failure =
    failure_of(request, *result, author, hint_for(*result, settings_));
  return tl::unexpected{
    mlflow_refusal{without_secrets(failure, settings_), result->status, code}};
}

} // namespace troupe::internal
