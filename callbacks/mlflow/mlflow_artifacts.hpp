#pragma once

#include <string>

#include "troupe/callbacks/mlflow/mlflow_api.hpp"
#include "troupe/callbacks/tracking/sink.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe {

/// Takes files to where an MLflow run keeps its artifacts: through the server
/// (`mlflow-artifacts:`), to a shared file system (`file:` or a path), or to
/// Databricks' storage by a signed URL (`dbfs:`). Others are refused.
class mlflow_artifacts {
public:
  explicit mlflow_artifacts(mlflow_api& api) : api_(api) {}

  /// From now on for the run *run_id* with its *root*, as the server tells it.
  void use(std::string run_id, std::string root);

  /// Replaces the artifact *name*, a relative path, by *file*.
  sink_result put(const fs::path& file, const std::string& name);

private:
  sink_result put_signed(const fs::path& file, const std::string& name);

  mlflow_api& api_;
  std::string run_id_;
  std::string root_;
};

/// Copies *file* to *target* durably and in one step: readers see the old file
/// or the new one. Makes the folders above. Rejected, if no other attempt can
/// succeed.
sink_result copy_artifact(const fs::path& file, const fs::path& target);

} // namespace troupe
