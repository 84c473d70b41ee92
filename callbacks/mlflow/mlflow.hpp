#pragma once

#include <map>
#include <memory>
#include <string>

#include "troupe/callbacks/tracking/row_values.hpp"
#include "troupe/callbacks/tracking/tracker.hpp"

namespace troupe {

/// How a run is shown in MLflow. An empty option falls back to what the train
/// loop passed to `start_tracking`, then to MLflow's own variable.
///
/// Credentials are not options. They come from MLFLOW_TRACKING_USERNAME and
/// MLFLOW_TRACKING_PASSWORD (or ~/.mlflow/credentials), or from
/// MLFLOW_TRACKING_TOKEN; for Databricks from DATABRICKS_HOST with
/// DATABRICKS_TOKEN, or with DATABRICKS_CLIENT_ID and DATABRICKS_CLIENT_SECRET,
/// or from a config file.
struct mlflow_options {
  /// `http(s)://…`, `databricks`, `databricks://<profile>`, or the folder of a
  /// file store as a path or a `file:` URI. Empty: MLFLOW_TRACKING_URI, else
  /// the file store `mlruns` beside the run's folder.
  std::string tracking_uri;
  /// Name of the experiment, which is created if it is missing. Empty: the
  /// loop's experiment, the loop's project, the id in MLFLOW_EXPERIMENT_ID,
  /// MLFLOW_EXPERIMENT_NAME, `Default`. On Databricks an absolute path:
  /// `/Shared/<name>`.
  std::string experiment;
  std::string experiment_id; ///< Takes precedence over every name.
  /// Empty: the loop's name, MLFLOW_RUN_NAME, the run's name.
  std::string run_name;
  /// Logs to this MLflow run instead of a new one. Empty: MLFLOW_RUN_ID.
  std::string run_id;
  std::map<std::string, std::string> tags; ///< Added to MLFLOW_TAGS (JSON).

  /// Empty: DATABRICKS_CONFIG_FILE, else ~/.databrickscfg.
  std::string databricks_config_file;
  /// Empty: DATABRICKS_CONFIG_PROFILE, else `DEFAULT`.
  std::string databricks_profile;

  rank_values ranks = rank_values::first;
  troupe::non_finite non_finite = troupe::non_finite::send;
  /// Copies each checkpoint to the artifacts. Otherwise only its path is shown.
  bool upload_checkpoints = false;

  /// Lists what is saved for `troupe sync`.
  template <class Visitor>
  void visit(Visitor& option) {
    option("tracking_uri", tracking_uri);
    option.harmless("experiment", experiment);
    option.harmless("experiment_id", experiment_id);
    option.harmless("run_name", run_name);
    option.harmless("run_id", run_id);
    option.harmless("tags", tags);
    option("databricks_config_file", databricks_config_file);
    option("databricks_profile", databricks_profile);
    option.harmless("ranks", ranks);
    option.harmless("non_finite", non_finite);
    option.harmless("upload_checkpoints", upload_checkpoints);
  }
};

/// Shows the run in MLflow. For `run_config::trackers`.
std::shared_ptr<tracker> mlflow_tracker(mlflow_options options = {},
                                        tracker_options tracking = {});

} // namespace troupe
