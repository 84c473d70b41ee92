#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "troupe/callbacks/mlflow/mlflow_client.hpp"
#include "troupe/callbacks/mlflow/mlflow_store.hpp"
#include "troupe/callbacks/tracking/sink.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe::internal {

/// Stores files as artifacts of an MLflow run: through the server
/// (`mlflow-artifacts:`), in a shared file system (`file:` or a path), or in
/// Databricks' storage through a signed URL (`dbfs:`). Refuses other places.
class mlflow_artifacts {
public:
  explicit mlflow_artifacts(mlflow_client& client) : client_(client) {}

  /// Selects the run *run_id* with its *root*, as named by the server.
  void use(std::string run_id, std::string root);

  /// Replaces the artifact *name*, a relative path, by *file*.
  sink_result put(const fs::path& file, const std::string& name);

private:
  sink_result put_signed(const fs::path& file, const std::string& name);
  tl::unexpected<sink_failure> not_stored(sink_failure x);

  mlflow_client& client_;
  std::string run_id_;
  std::string root_;
};

/// Stores a run at an MLflow server or on Databricks.
///
/// Repeating is safe: metrics are unique by key, time, step and value in the
/// server's database, params and tags by key, artifacts by path. A run whose
/// id was lost with a reply is found by its tag `troupe.run_uid`.
class mlflow_server final : public mlflow_store {
public:
  mlflow_server(mlflow_settings settings, std::stop_token cancelled);

  sink_result open(const mlflow_run& run, const std::string& state) override;

  const std::map<std::string, std::string>& params() const override {
    return params_;
  }

  sink_result log_metrics(std::span<const mlflow_metric> metrics) override;
  sink_result log_params(std::span<const mlflow_pair> params) override;
  sink_result set_tags(std::span<const mlflow_pair> tags) override;
  sink_result put_file(const fs::path& file, const std::string& name) override;
  sink_result end(run_status_kind status, std::int64_t time_ms) override;
  std::string state() const override;

private:
  /// An id; empty if there is none.
  using found = tl::expected<std::string, sink_failure>;

  found find_experiment();
  found experiment_by_name();
  found make_experiment();
  found find_run(const std::string& experiment_id);
  sink_result make_run(const std::string& experiment_id,
                       const std::string& replaced);
  /// Loads the run *id*. Returns whether it exists and is not deleted.
  tl::expected<bool, sink_failure> load_run(const std::string& id);
  sink_result resume();
  std::vector<mlflow_pair> own_tags() const;
  sink_result send(const mlflow_body& body);
  sink_failure lost_run(const mlflow_refusal& x);

  mlflow_client client_;
  mlflow_artifacts artifacts_;
  mlflow_run run_;
  std::string id_;
  std::map<std::string, std::string> params_;
  std::set<std::string> tags_; ///< Keys that the run had when it was loaded.
  bool is_given_ = false;      ///< Someone else created the run.
};

} // namespace troupe::internal
