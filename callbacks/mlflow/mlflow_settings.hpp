#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "troupe/callbacks/http/http_client.hpp"
#include "troupe/callbacks/mlflow/mlflow.hpp"
#include "troupe/callbacks/mlflow/mlflow_store.hpp"
#include "troupe/callbacks/tracking/tracked_run.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe::internal {

/// Where MLflow is and how to log in, combined from options, environment and
/// MLflow's own files. Contains secrets.
struct mlflow_settings {
  std::string server; ///< Without a trailing slash; empty: a file store.
  fs::path tree;      ///< Absolute folder of a file store.
  bool databricks = false;
  http_options http;
  std::string client_id; ///< With `client_secret`: OAuth.
  std::string client_secret;
  std::string workspace;             ///< MLFLOW_WORKSPACE
  std::chrono::seconds timeout{120}; ///< MLFLOW_HTTP_REQUEST_TIMEOUT
};

/// *run_path* is the run's folder. `ec::invalid_config` for an unusable address
/// or missing credentials for Databricks; the sentence names the variables and
/// the file that were read.
expected<mlflow_settings> resolve_mlflow(const mlflow_options& options,
                                         const fs::path& run_path);

/// The folder that the file store `mlruns` lies beside, if no other is given:
/// the run's, that of a trial's sweep.
fs::path mlflow_home(const tracked_run& run);

/// *options* as JSON for another process: MLFLOW_TRACKING_URI and Databricks'
/// file and profile are filled in from the environment, and the user is removed
/// from the address.
std::string to_json(mlflow_options options);

/// How *run* starts in MLflow: *options* take precedence, then what the train
/// loop passed, then MLflow's variables.
/// A run that these name is the parent of a sweep's trials, and not their own.
mlflow_run describe_mlflow_run(const mlflow_options& options,
                               const tracked_run& run);

/// MLflow's tag with the id of the run that a run is nested below.
inline constexpr const char* mlflow_parent_tag = "mlflow.parentRunId";

/// How the parent of the trials of the sweep of *run* starts in MLflow; nothing
/// if *run* is not a trial, or if the user's tags name another parent.
std::optional<mlflow_run> describe_mlflow_parent(const mlflow_options& options,
                                                 const tracked_run& run);

} // namespace troupe::internal
