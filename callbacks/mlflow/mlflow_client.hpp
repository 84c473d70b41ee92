#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "troupe/callbacks/http/http_client.hpp"
#include "troupe/callbacks/mlflow/mlflow_settings.hpp"
#include "troupe/callbacks/mlflow/mlflow_store.hpp"
#include "troupe/callbacks/tracking/sink.hpp"
#include "troupe/runtime/error.hpp"

namespace troupe::internal {

/// What one request of `runs/log-batch` may contain.
struct mlflow_limits {
  std::size_t metrics = 1000;
  std::size_t pairs = 100;
  /// Databricks accepts 1 MB; the rest is for what proxies add.
  std::size_t bytes = 900'000;
};

/// The body of one request.
struct mlflow_body {
  std::string json;
  std::size_t items = 0;
};

// The bodies that together log all items in order, each within *limits*. The
// server stores zeros for malformed numbers, so non-finite values are sent as
// texts and all others as finite JSON numbers.

std::vector<mlflow_body> metric_bodies(const std::string& run_id,
                                       std::span<const mlflow_metric> metrics,
                                       const mlflow_limits& limits = {});

std::vector<mlflow_body> param_bodies(const std::string& run_id,
                                      std::span<const mlflow_pair> params,
                                      const mlflow_limits& limits = {});

std::vector<mlflow_body> tag_bodies(const std::string& run_id,
                                    std::span<const mlflow_pair> tags,
                                    const mlflow_limits& limits = {});

/// The bearer token of a Databricks service principal (OAuth 2, client
/// credentials). It is fetched when needed, again a minute before it expires,
/// and if the server refuses it.
class mlflow_login {
public:
  using clock = std::chrono::steady_clock;

  explicit mlflow_login(const mlflow_settings& settings);

  /// Whether requests need such a token.
  bool is_needed() const noexcept { return needed_; }

  /// Whether a token must be fetched now.
  bool is_due(clock::time_point now) const noexcept { return now >= due_; }

  /// Fetches a new token; fails like any request.
  tl::expected<std::string, sink_failure> fetch(std::stop_token stop);

private:
  bool needed_ = false;
  std::string url_;
  http_client client_;
  clock::time_point due_ = clock::time_point::min();
};

/// The message about a server that is not MLflow.
std::string not_mlflow(const mlflow_settings& x);

/// A call that an MLflow server did not carry out.
struct mlflow_refusal {
  sink_failure failure;
  int status = 0;   ///< HTTP status; 0: no reply.
  std::string code; ///< `error_code` of the reply; empty: none.

  /// Whether the requested object does not exist.
  bool is_missing() const { return code == "RESOURCE_DOES_NOT_EXIST"; }

  bool already_exists() const {
    return code == "RESOURCE_ALREADY_EXISTS" || code == "ALREADY_EXISTS";
  }
};

/// Calls the REST interface of an MLflow server, with one attempt per call.
class mlflow_client {
public:
  using reply = tl::expected<std::string, mlflow_refusal>;

  mlflow_client(mlflow_settings settings, std::stop_token cancelled);

  /// GET of *what*, a path below `api/2.0/mlflow/` with its query. Returns
  /// JSON.
  reply get(const std::string& what);

  /// POST of a JSON object. *repeatable* as in `http_request`.
  reply post(const std::string& what, std::string json, bool repeatable = true);

  /// PUT of a file to *path* below the server's address.
  reply put(const std::string& path, const fs::path& file);

  /// Sends *request* unchanged, without the server's credentials: a signed URL
  /// contains its own.
  reply send_plain(const http_request& request);

  const mlflow_settings& settings() const noexcept { return settings_; }

private:
  /// A call whose answer is a JSON object. Any other answer is transient: a
  /// login page or a maintenance page has taken nothing.
  reply call(http_request request);
  reply send(http_request request);
  /// Fetches a token for the next requests.
  tl::expected<void, mlflow_refusal> log_in();
  reply checked(const http_request& request, http_result result);

  mlflow_settings settings_;
  std::stop_token cancelled_;
  http_client client_;
  mlflow_login login_;
};

} // namespace troupe::internal
