#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "troupe/callbacks/mlflow/mlflow_batch.hpp"
#include "troupe/callbacks/tracking/sink.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/run/run_status_kind.hpp"

namespace troupe {

/// What MLflow is told to begin a run with. Experiments and runs are looked for
/// before they are made.
struct mlflow_run {
  std::string experiment;    ///< Name; made if it is missing.
  std::string experiment_id; ///< Goes before the name.
  std::string name;
  std::string uid;    ///< Troupe's id of the run: 32 hex digits.
  std::string run_id; ///< A run of MLflow's to log to; empty: ours.
  std::int64_t start_ms = 0;
  std::vector<mlflow_pair> tags;
  std::string user;
};

/// Where a run is kept: at a server or in a tree of files. One run at a time;
/// all names and values fit already.
class mlflow_store {
public:
  virtual ~mlflow_store() = default;

  /// Makes the run, or opens the one of *state* (empty: none) again, sets its
  /// tags and has it RUNNING. Where the run of *state* was deleted, a new one
  /// takes its place and says so in the tag `troupe.replaces`.
  virtual sink_result open(const mlflow_run& run, const std::string& state) = 0;

  /// Params that the run has: they cannot be changed.
  virtual const std::map<std::string, std::string>& params() const = 0;

  /// Of a failure, `accepted` counts metrics.
  virtual sink_result log_metrics(std::span<const mlflow_metric> metrics) = 0;

  /// None of *params* is in `params()`, and none twice.
  virtual sink_result log_params(std::span<const mlflow_pair> params) = 0;

  virtual sink_result set_tags(std::span<const mlflow_pair> tags) = 0;

  /// Keeps a copy of *file* under the relative path *name*.
  virtual sink_result put_file(const fs::path& file,
                               const std::string& name) = 0;

  virtual sink_result end(run_status_kind status, std::int64_t time_ms) = 0;

  /// A JSON object, what `open` needs in another process.
  virtual std::string state() const = 0;
};

} // namespace troupe
