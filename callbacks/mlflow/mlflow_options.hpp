#pragma once

#include <map>
#include <string>

#include "troupe/callbacks/tracking/row_values.hpp"

namespace troupe {

/// How a run is shown in MLflow. What is left empty comes from what the train
/// loop gave to `start_tracking`, then from MLflow's own variables.
///
/// Credentials are no options: MLFLOW_TRACKING_USERNAME with
/// MLFLOW_TRACKING_PASSWORD (or ~/.mlflow/credentials), MLFLOW_TRACKING_TOKEN;
/// for Databricks, DATABRICKS_HOST with DATABRICKS_TOKEN or
/// DATABRICKS_CLIENT_ID and DATABRICKS_CLIENT_SECRET, or a config file.
struct mlflow_options {
  /// `http(s)://…`, `databricks`, `databricks://<profile>`, or the folder of a
  /// file store as path or `file:` URI. Empty: MLFLOW_TRACKING_URI, else the
  /// file store `mlruns` beside the run's folder.
  std::string tracking_uri;
  /// Name; else the loop's experiment, the loop's project, the id in
  /// MLFLOW_EXPERIMENT_ID, MLFLOW_EXPERIMENT_NAME, `Default`. It is made if it
  /// is missing. On Databricks an absolute path: `/Shared/<name>`.
  std::string experiment;
  std::string experiment_id; ///< Goes before every name.
  std::string run_name;      ///< Else the loop's, MLFLOW_RUN_NAME, the run's.
  /// Logs to this run of MLflow's instead of a new one; else MLFLOW_RUN_ID.
  std::string run_id;
  std::map<std::string, std::string> tags; ///< Beside MLFLOW_TAGS (JSON).

  /// Empty: DATABRICKS_CONFIG_FILE, else ~/.databrickscfg.
  std::string databricks_config_file;
  /// Empty: DATABRICKS_CONFIG_PROFILE, else `DEFAULT`.
  std::string databricks_profile;

  rank_values ranks = rank_values::first;
  non_finite numbers = non_finite::send;
  /// Copies each checkpoint to the artifacts. Otherwise only its path is shown.
  bool upload_checkpoints = false;
};

} // namespace troupe
