#pragma once

#include "troupe/callbacks/mlflow/mlflow_api.hpp"
#include "troupe/callbacks/mlflow/mlflow_artifacts.hpp"
#include "troupe/callbacks/mlflow/mlflow_store.hpp"

namespace troupe {

/// A run at an MLflow server or on Databricks.
///
/// Repeating is safe: metrics are unique by key, time, step and value in the
/// server's database, params and tags by key, artifacts by path. A run whose
/// id got lost with a reply is found by its tag `troupe.run_uid`.
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
  /// An id, or nothing where there is none.
  using found = tl::expected<std::string, sink_failure>;

  found find_experiment();
  found experiment_by_name();
  found make_experiment();
  found find_run(const std::string& experiment_id);
  sink_result make_run(const std::string& experiment_id,
                       const std::string& replaced);
  /// Whether the run *id* is there to be used.
  tl::expected<bool, sink_failure> load_run(const std::string& id);
  sink_result resume();
  sink_result send(std::span<const mlflow_body> bodies);
  sink_failure lost_run(const mlflow_refusal& x);

  mlflow_api api_;
  mlflow_artifacts artifacts_;
  mlflow_run run_;
  std::string id_;
  std::map<std::string, std::string> params_;
};

} // namespace troupe
