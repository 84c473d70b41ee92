#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "troupe/callbacks/tracking/row_values.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe {

enum class wandb_mode : std::uint8_t {
  online,   ///< Files, and the user's own `wandb` uploads them meanwhile.
  offline,  ///< Files only; `wandb sync` uploads them later.
  disabled, ///< Nothing at all.
};

/// How a run is shown in Weights & Biases. What is left empty comes from what
/// the train loop gave to `start_tracking`, then from W&B's own variables,
/// whose names stand behind each.
struct wandb_options {
  std::string project = {};           ///< WANDB_PROJECT, else `uncategorized`.
  std::string entity = {};            ///< WANDB_ENTITY, else the key's own.
  std::string name = {};              ///< WANDB_NAME, else the run's name.
  std::string group = {};             ///< WANDB_RUN_GROUP
  std::string job_type = {};          ///< WANDB_JOB_TYPE
  std::string notes = {};             ///< WANDB_NOTES
  std::vector<std::string> tags = {}; ///< WANDB_TAGS, separated by commas.
  /// W&B's id of the run; WANDB_RUN_ID, else Troupe's, which every life of the
  /// run has.
  std::string run_id = {};
  /// The runs' folders lie in `<dir>/wandb/`; WANDB_DIR, else the run's own
  /// folder.
  fs::path dir = {};
  std::optional<wandb_mode> mode = {}; ///< WANDB_MODE, else online.

  /// Better left empty: WANDB_API_KEY and ~/.netrc do for every program. Given
  /// here it reaches the uploading process alone, and no file.
  std::string api_key = {};
  /// The user's W&B client; looked for in PATH unless it has a slash.
  std::string program = "wandb";
  /// How long `finish` waits for the upload: W&B's client itself never gives up
  /// while its service is down.
  std::chrono::seconds finish_timeout{60};

  bool console = true;      ///< Show what rank 0 printed.
  bool system_stats = true; ///< Show how the driver's host is.
  rank_values ranks = rank_values::first;
  non_finite when_non_finite = non_finite::send;
};

} // namespace troupe
