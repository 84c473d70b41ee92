#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "troupe/callbacks/mlflow/mlflow.hpp"
#include "troupe/callbacks/mlflow/mlflow_names.hpp"
#include "troupe/callbacks/mlflow/mlflow_parent.hpp"
#include "troupe/callbacks/mlflow/mlflow_store.hpp"
#include "troupe/callbacks/tracking/sink.hpp"

namespace troupe::internal {

struct mlflow_settings;

/// Shows a run in MLflow, at a server or in a file store.
///
///   - Numbers become metrics; the step is the report's index, or the step that
///     the loop logged them with. Texts become tags.
///   - The loop's config and `log_params` become params. They are immutable in
///     MLflow: a value that changed becomes the tag
///     `troupe.param_changed.<name>`.
///   - A setting of the config that the server refuses, for example because it
///     is longer than an older MLflow takes, becomes the tag
///     `troupe.param_refused.<name>`, with a note.
///   - Texts, images, histograms and artifacts become artifacts. The path of
///     the last checkpoint is the tag `troupe.checkpoint`.
///   - The run of a trial is nested below that of its sweep.
///   - Names that MLflow does not accept are changed, and the tag
///     `troupe.name.<new>` holds the old one.
class mlflow_sink final : public built_in_sink {
public:
  using options_type = mlflow_options;

  explicit mlflow_sink(mlflow_options options = {});

  std::string name() const override { return "mlflow"; }
  std::string options() const override;
  std::shared_ptr<sink> another() const override {
    return std::make_shared<mlflow_sink>(options_);
  }
  expected<void> check(const tracked_run& run) const override;
  sink_result start(const tracked_run& run, const std::string& state) override;
  sink_result log(std::span<const tracker_record> records) override;
  sink_result finish(run_status_kind status,
                     std::chrono::system_clock::time_point time) override;
  std::string state() const override;
  std::vector<std::string> take_notes() override {
    return std::exchange(notes_, {});
  }
  std::size_t ranks() const override { return ranks_for(options_.ranks); }

private:
  struct gathered;

  /// Makes *to*, of a trial, a child of its sweep's run.
  sink_result nest(mlflow_run& to, const tracked_run& run,
                   const mlflow_settings& settings);
  sink_result log_params(const metrics& values);
  /// The config, which the server has refused as a whole.
  sink_result log_params_singly(const metrics& values);
  sink_result tag_changed_names();
  void gather(const tracker_record& record, gathered& to);
  void gather(const metrics& values, std::int64_t step, std::int64_t time_ms,
              gathered& to);
  sink_result flush(gathered& x);
  sink_result log_files(const tracker_record& record);
  sink_result put_checkpoint(const journaled_batch& row);
  sink_result put(const fs::path& path, const std::string& name);
  sink_result put_text(const std::string& text, const std::string& name);
  sink_result put_image(const logged_image& x, const tracker_record& record);
  sink_result set_tag(const std::string& key, const std::string& value);

  mlflow_options options_;
  std::unique_ptr<mlflow_store> store_;
  std::unique_ptr<mlflow_parent> parent_; ///< Of a trial.
  fs::path run_path_;
  mlflow_names names_;
  std::vector<std::string> notes_;
  bool announced_ = false;       ///< The user knows how to show the file store.
  std::size_t tagged_names_ = 0; ///< Changed names that tags hold.
  std::map<std::string, std::string> texts_; ///< Tags of values so far.
};

} // namespace troupe::internal
