#pragma once

#include <chrono>
#include <string>

#include "troupe/callbacks/http/http_client.hpp"
#include "troupe/callbacks/mlflow/mlflow_options.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe {

/// Where MLflow is and how it is spoken to: what options, environment and
/// MLflow's own files say together. Holds secrets.
struct mlflow_settings {
  std::string server; ///< Without a slash at its end; empty: a tree.
  fs::path tree;      ///< Absolute folder of a file store.
  bool databricks = false;
  http_options http;
  std::string client_id; ///< With `client_secret`: OAuth.
  std::string client_secret;
  std::string workspace;             ///< MLFLOW_WORKSPACE
  std::chrono::seconds timeout{120}; ///< MLFLOW_HTTP_REQUEST_TIMEOUT
};

/// *run_path* is the run's folder. `ec::invalid_config`: an address that no one
/// can use, or no credentials for Databricks; the sentence names the variables
/// and the file that were looked for.
expected<mlflow_settings> resolve_mlflow(const mlflow_options& options,
                                         const fs::path& run_path);

/// What *options* are in another process: MLFLOW_TRACKING_URI and Databricks'
/// file and profile are filled in from this one's environment, and user info
/// is gone from the address.
mlflow_options portable(mlflow_options options);

} // namespace troupe
