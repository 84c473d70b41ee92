#pragma once

#include <chrono>
#include <stop_token>
#include <string>

#include "troupe/callbacks/http/http_client.hpp"
#include "troupe/callbacks/mlflow/mlflow_settings.hpp"
#include "troupe/callbacks/tracking/sink.hpp"
#include "troupe/runtime/error.hpp"

namespace troupe {

/// The bearer token of a Databricks service principal (OAuth 2, client
/// credentials), fetched when it is needed and again a minute before it ends.
class mlflow_login {
public:
  using clock = std::chrono::steady_clock;

  explicit mlflow_login(const mlflow_settings& settings);

  /// Whether requests need a token of this kind.
  bool is_needed() const noexcept { return needed_; }

  /// Whether the token must be fetched (again).
  bool is_due(clock::time_point now) const noexcept { return now >= due_; }

  /// A new token; fails like any request.
  tl::expected<std::string, sink_failure> fetch(std::stop_token stop);

private:
  bool needed_ = false;
  std::string url_;
  http_client client_;
  clock::time_point due_ = clock::time_point::min();
};

} // namespace troupe
