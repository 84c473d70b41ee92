#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "troupe/callbacks/tracking/sink.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/values/run_status.hpp"

namespace troupe::internal {

/// One point of a metric.
struct mlflow_metric {
  std::string key;
  double value = 0;
  std::int64_t time_ms = 0; ///< Since 1970.
  std::int64_t step = 0;
};

/// A param or a tag.
struct mlflow_pair {
  std::string key;
  std::string value;

  bool operator==(const mlflow_pair&) const = default;
};

/// How a run starts. Experiments and runs are searched for before they are
/// created.
struct mlflow_run {
  std::string experiment;    ///< Name; created if it is missing.
  std::string experiment_id; ///< Takes precedence over the name.
  std::string name;
  std::string uid;    ///< Troupe's id of the run: 32 hex digits.
  std::string run_id; ///< An MLflow run to log to; empty: one of our own.
  /// Others log to it, too, so that nothing in it may be cut off.
  bool is_shared = false;
  std::int64_t start_ms = 0;
  std::vector<mlflow_pair> tags;
  std::string user;
};

/// Stores a run at a server or in a tree of files. One run at a time; names and
/// values are valid for MLflow already.
class mlflow_store {
public:
  virtual ~mlflow_store() = default;

  /// Creates the run, or reopens the one of *state* (empty: none), sets its
  /// tags and its status RUNNING. If the run of *state* was deleted, a new one
  /// replaces it and says so in the tag `troupe.replaces`.
  virtual sink_result open(const mlflow_run& run, const std::string& state) = 0;

  /// The params that the run has: they cannot be changed.
  virtual const std::map<std::string, std::string>& params() const = 0;

  /// `accepted` of a failure counts metrics; no other call sets it.
  virtual sink_result log_metrics(std::span<const mlflow_metric> metrics) = 0;

  /// The metrics of the last `log_metrics` will be given again: `state()` is as
  /// if they had not been logged. A server recognizes them.
  virtual void expect_metrics_again() {}

  /// None of *params* is in `params()`, and none occurs twice.
  virtual sink_result log_params(std::span<const mlflow_pair> params) = 0;

  virtual sink_result set_tags(std::span<const mlflow_pair> tags) = 0;

  /// Stores a copy of *file* as artifact *name*, a relative path.
  virtual sink_result put_file(const fs::path& file,
                               const std::string& name) = 0;

  /// Whether artifact *name* is complete where only this process writes it; a
  /// server is not asked.
  virtual bool has_file(const std::string&) const { return true; }

  /// Removes artifact *name*, a file or a folder, if there is one. A server
  /// keeps it.
  virtual sink_result remove(const std::string&) { return {}; }

  virtual sink_result end(run_status_kind status, std::int64_t time_ms) = 0;

  /// A JSON object: what `open` needs in another process.
  virtual std::string state() const = 0;
};

} // namespace troupe::internal
