#pragma once

#include <stop_token>
#include <string>

#include "troupe/callbacks/http/http_client.hpp"
#include "troupe/callbacks/mlflow/mlflow_login.hpp"
#include "troupe/callbacks/mlflow/mlflow_settings.hpp"
#include "troupe/callbacks/tracking/sink.hpp"
#include "troupe/runtime/error.hpp"

namespace troupe {

/// A call that an MLflow server did not do.
struct mlflow_refusal {
  sink_failure failure;
  int status = 0;   ///< Of HTTP; 0: no reply.
  std::string code; ///< `error_code` of the reply, if it has one.

  /// Whether what was asked for is not there.
  bool is_missing() const { return code == "RESOURCE_DOES_NOT_EXIST"; }

  bool already_exists() const {
    return code == "RESOURCE_ALREADY_EXISTS" || code == "ALREADY_EXISTS";
  }
};

/// The REST interface of an MLflow server: one attempt a call.
class mlflow_api {
public:
  using reply = tl::expected<std::string, mlflow_refusal>;

  mlflow_api(mlflow_settings settings, std::stop_token cancelled);

  /// GET of *what*, a path below `api/2.0/mlflow/` with its query: JSON.
  reply get(const std::string& what);

  /// POST of a JSON object. *repeatable* as in `http_request`.
  reply post(const std::string& what, std::string json, bool repeatable = true);

  /// PUT of a file to *path* below the server's address.
  reply put(const std::string& path, const fs::path& file);

  /// Sends *request* as it is, with none of the server's credentials: a signed
  /// URL holds its own.
  reply send_plain(const http_request& request);

  const mlflow_settings& settings() const noexcept { return settings_; }

private:
  reply send(http_request request);
  reply checked(const http_request& request, http_result result);

  mlflow_settings settings_;
  std::stop_token cancelled_;
  http_client client_;
  mlflow_login login_;
};

} // namespace troupe
