#pragma once

#include <array>
#include <string_view>

namespace troupe {

/// Environment variables with which programs sign in to trackers. Rank
/// processes do not get them unless they are asked for.
inline constexpr std::array<std::string_view, 7> credential_variables{
  "COMET_API_KEY",         "DATABRICKS_CLIENT_SECRET",
  "DATABRICKS_TOKEN",      "MLFLOW_TRACKING_PASSWORD",
  "MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_USERNAME",
  "WANDB_API_KEY",
};

} // namespace troupe
