#pragma once

#include <cstdint>
#include <stop_token>

#include "troupe/callbacks/mlflow/mlflow_store.hpp"
#include "troupe/runtime/error.hpp"

namespace troupe::internal {

/// Stores a run in the folder of MLflow's file store (`mlruns`), without a
/// server and without Python.
///
/// The state holds the size of every metric file: `open` cuts off what was
/// written after it, because it will be delivered again. Every line is written
/// in one piece, and what a call has accepted survives a power cut.
///
/// Others may write to a run that the user named by its id. Nothing is ever cut
/// off there: lines behind the saved size are not written again, and name,
/// start and user stay as they are.
///
/// MLflow 3.13 and later read such a tree only if MLFLOW_ALLOW_FILE_STORE is
/// set; `mlflow migrate-filestore` converts it.
class mlflow_tree final : public mlflow_store {
public:
  /// Creates *root* if it is missing. Writes nothing once a stop is requested
  /// through *over*.
  explicit mlflow_tree(fs::path root, std::stop_token over = {})
    : root_(std::move(root)), over_(std::move(over)) {}

  sink_result open(const mlflow_run& run, const std::string& state) override;

  const std::map<std::string, std::string>& params() const override {
    return params_;
  }

  sink_result log_metrics(std::span<const mlflow_metric> metrics) override;
  void expect_metrics_again() override { sizes_ = former_sizes_; }
  sink_result log_params(std::span<const mlflow_pair> params) override;
  sink_result set_tags(std::span<const mlflow_pair> tags) override;
  sink_result put_file(const fs::path& file, const std::string& name) override;
  bool has_file(const std::string& name) const override;
  sink_result remove(const std::string& name) override;
  sink_result end(run_status_kind status, std::int64_t time_ms) override;
  std::string state() const override;

private:
  using sizes_type = std::map<std::string, std::uint64_t>;

  expected<fs::path> experiment_folder();
  expected<fs::path> make_experiment(const std::string& id,
                                     const std::string& name);
  expected<void> make_run();
  expected<void> remove_temporary_files();
  expected<void> cut_metrics();
  expected<void> write_meta(run_status_kind status, std::int64_t end_ms);
  std::string new_meta(const std::string& status, const std::string& end) const;
  expected<std::vector<mlflow_pair>> own_tags() const;
  expected<std::string> place_of(const char* what,
                                 const std::string& key) const;
  expected<void> write_values(const char* what,
                              std::span<const mlflow_pair> values);
  expected<fs::path> write_value(const char* what, const mlflow_pair& x);

  fs::path root_;
  std::stop_token over_;
  fs::path folder_; ///< Of the run.
  mlflow_run run_;
  std::string id_;
  bool is_ours_ = true; ///< No one else writes to the run.
  std::string experiment_id_;
  sizes_type sizes_;        ///< Of the metric files, by key.
  sizes_type former_sizes_; ///< Before the last `log_metrics`.
  std::map<std::string, std::string> params_;
};

} // namespace troupe::internal
