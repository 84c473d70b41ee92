#include "troupe/callbacks/mlflow/mlflow_api.hpp"

#include <nlohmann/json.hpp>

#include "troupe/callbacks/tracking/http_failure.hpp"
#include "troupe/runtime/process/redacted.hpp"

namespace troupe {

namespace {

std::string hint_for(const http_reply& x, const mlflow_settings& settings) {
  if (x.status == 403 && x.body.find("Invalid Host header") != x.body.npos)
    return "start the server with --allowed-hosts and the name in the address";
  if (x.status != 401 && x.status != 403)
    return {};
  if (settings.databricks)
    return "see DATABRICKS_HOST and DATABRICKS_TOKEN (or DATABRICKS_CLIENT_ID "
           "and DATABRICKS_CLIENT_SECRET), or the profile of the config file";
  if (x.status == 403)
    return "the user of MLFLOW_TRACKING_USERNAME or MLFLOW_TRACKING_TOKEN has "
           "no right to do this";
  return "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or "
         "MLFLOW_TRACKING_TOKEN, to what the server knows";
}

std::string code_of(const std::string& body) {
  auto json = nlohmann::json::parse(body, nullptr, false);
  if (json.is_object() && json.contains("error_code")
      && json["error_code"].is_string())
    return json["error_code"].get<std::string>();
  return {};
}

/// Takes the server's own secrets out of a failure, wherever they came from.
sink_failure without_secrets(sink_failure x, const mlflow_settings& settings) {
  for (const auto& secret :
       {settings.http.password, settings.http.token, settings.client_secret})
    x.reason.message = redacted(x.reason.message, secret);
  return x;
}

} // namespace

mlflow_api::mlflow_api(mlflow_settings settings, std::stop_token cancelled)
  : settings_(std::move(settings)), cancelled_(std::move(cancelled)),
    client_(settings_.http), login_(settings_) {}

mlflow_api::reply mlflow_api::get(const std::string& what) {
  return send(
    {.method = "GET", .url = settings_.server + "/api/2.0/mlflow/" + what});
}

mlflow_api::reply mlflow_api::post(const std::string& what, std::string json,
                                   bool repeatable) {
  return send({.method = "POST",
               .url = settings_.server + "/api/2.0/mlflow/" + what,
               .headers = {{"Content-Type", "application/json"}},
               .body = std::move(json),
               .repeatable = repeatable});
}

mlflow_api::reply mlflow_api::put(const std::string& path,
                                  const fs::path& file) {
  return send({.method = "PUT", .url = settings_.server + path, .file = file});
}

mlflow_api::reply mlflow_api::send_plain(const http_request& request) {
  auto options = settings_.http;
  options.user.clear();
  options.password.clear();
  options.token.clear();
  http_client client{std::move(options)};
  return checked(request, client.send(request, cancelled_));
}

mlflow_api::reply mlflow_api::send(http_request request) {
  if (login_.is_needed() && login_.is_due(mlflow_login::clock::now())) {
    auto token = login_.fetch(cancelled_);
    if (!token)
      return tl::unexpected{
        mlflow_refusal{without_secrets(token.error(), settings_), 0, {}}};
    client_.use_token(*token);
  }
  request.timeout = settings_.timeout;
  if (!settings_.workspace.empty())
    request.headers.emplace_back("X-MLFLOW-WORKSPACE", settings_.workspace);
  return checked(request, client_.send(request, cancelled_));
}

mlflow_api::reply mlflow_api::checked(const http_request& request,
                                      http_result result) {
  if (!result)
    return tl::unexpected{mlflow_refusal{
      without_secrets(failure_of(request, result.error()), settings_), 0, {}}};
  if (result->ok())
    return std::move(result->body);
  auto failure = failure_of(request, *result, hint_for(*result, settings_));
  return tl::unexpected{mlflow_refusal{without_secrets(failure, settings_),
                                       result->status, code_of(result->body)}};
}

} // namespace troupe
