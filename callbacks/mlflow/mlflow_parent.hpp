#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>

#include "troupe/callbacks/mlflow/mlflow_store.hpp"
#include "troupe/callbacks/tracking/sink.hpp"
#include "troupe/runtime/values/run_status.hpp"

namespace troupe::internal {

/// The MLflow run of a sweep, below which those of its trials are nested. Each
/// trial holds it. The first one creates the run; later ones, also of another
/// driver, find it by the id of the sweep.
///
///   MP-1  Trials of one process ask for it one after the other, so that no two
///         of them create it.
///   MP-2  It is ended when the last trial that holds it ends, and is running
///         again with the next one.
class mlflow_parent {
public:
  /// *store* is for the parent alone. A stop requested through *cancelled* ends
  /// the wait for other trials.
  static tl::expected<std::unique_ptr<mlflow_parent>, sink_failure>
  open(std::unique_ptr<mlflow_store> store, const mlflow_run& run,
       std::stop_token cancelled);

  ~mlflow_parent();

  mlflow_parent(const mlflow_parent&) = delete;
  mlflow_parent& operator=(const mlflow_parent&) = delete;

  /// MLflow's id.
  const std::string& id() const noexcept { return id_; }

  /// A trial has ended with *status*: the parent ends, too, unless another
  /// trial holds it.
  sink_result end(run_status_kind status, std::int64_t time_ms);

private:
  mlflow_parent(std::unique_ptr<mlflow_store> store, std::string uid,
                std::stop_token cancelled);

  void hold();
  /// Returns whether no trial holds the parent any more.
  bool release();

  std::unique_ptr<mlflow_store> store_;
  std::string uid_;
  std::stop_token cancelled_;
  std::string id_;
  bool holds_ = false;
};

} // namespace troupe::internal
