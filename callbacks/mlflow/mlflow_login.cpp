#include "troupe/callbacks/mlflow/mlflow_login.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "troupe/callbacks/tracking/http_failure.hpp"

namespace troupe {

namespace {

/// The client's id and secret go as basic auth.
http_options options_of(const mlflow_settings& x) {
  auto result = x.http;
  result.user = x.client_id;
  result.password = x.client_secret;
  result.token.clear();
  return result;
}

} // namespace

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
    auto failed = failure_of(request, *reply,
                             "see DATABRICKS_CLIENT_ID and "
                             "DATABRICKS_CLIENT_SECRET");
    if (failed.what == sink_failure::kind::rejected)
      failed.what = sink_failure::kind::permanent;
    return tl::unexpected{failed};
  }
  auto json = nlohmann::json::parse(reply->body, nullptr, false);
  if (!json.is_object() || !json.contains("access_token")
      || !json["access_token"].is_string())
    return sink_fails(sink_failure::kind::permanent,
                      {ec::protocol, url_ + " answered without a token"});
  auto lifetime = json.contains("expires_in") && json["expires_in"].is_number()
                    ? json["expires_in"].get<double>()
                    : 3600.0;
  auto seconds = static_cast<long>(std::clamp(lifetime - 60, 0.0, 86400.0));
  due_ = clock::now() + std::chrono::seconds{seconds};
  return json["access_token"].get<std::string>();
}

} // namespace troupe
