#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/callbacks/tracking/row_values.hpp"
#include "troupe/callbacks/tracking/tracker.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe {

enum class wandb_mode : std::uint8_t {
  online,   ///< Writes files; the user's own `wandb` uploads them meanwhile.
  offline,  ///< Writes files only; `wandb sync` uploads them later.
  disabled, ///< Does nothing.
};

/// The names in saved options.
constexpr std::array<std::string_view, 3> option_names(wandb_mode) {
  return {"online", "offline", "disabled"};
}

/// How a run is shown in Weights & Biases. An empty option falls back to what
/// the train loop passed to `start_tracking`, then to W&B's own variable, which
/// the comment on the option names.
struct wandb_options {
  std::string project = {};           ///< WANDB_PROJECT, else `uncategorized`.
  std::string entity = {};            ///< WANDB_ENTITY, else the key's default.
  std::string name = {};              ///< WANDB_NAME, else the run's name.
  std::string group = {};             ///< WANDB_RUN_GROUP
  std::string job_type = {};          ///< WANDB_JOB_TYPE
  std::string notes = {};             ///< WANDB_NOTES
  std::vector<std::string> tags = {}; ///< WANDB_TAGS, separated by commas.
  /// W&B's id of the run: WANDB_RUN_ID, else Troupe's id, which stays the same
  /// when the run is resumed.
  std::string run_id = {};
  /// The runs' folders are created in `<dir>/wandb/`: WANDB_DIR, else the run's
  /// own folder.
  fs::path dir = {};
  std::optional<wandb_mode> mode = {}; ///< WANDB_MODE, else online.

  /// Prefer WANDB_API_KEY or ~/.netrc, which every program reads. A key given
  /// here is passed to the uploading process only and is never written to a
  /// file.
  std::string api_key = {};
  /// The user's W&B client; searched for in PATH unless it contains a slash.
  std::string program = "wandb";
  /// How long `finish` waits for the upload: W&B's client itself never gives up
  /// while its service is down.
  std::chrono::seconds finish_timeout{60};

  bool console = true;      ///< Show what rank 0 printed.
  bool system_stats = true; ///< Show CPU, memory and network of the driver.
  rank_values ranks = rank_values::first;
  troupe::non_finite non_finite = troupe::non_finite::send;

  /// Lists what is saved for `troupe sync`: all but the key.
  template <class Visitor>
  void visit(Visitor& option) {
    option.harmless("project", project);
    option.harmless("entity", entity);
    option.harmless("name", name);
    option.harmless("group", group);
    option.harmless("job_type", job_type);
    option.harmless("notes", notes);
    option.harmless("tags", tags);
    option.harmless("run_id", run_id);
    option("dir", dir);
    option.harmless("mode", mode);
    option("program", program);
    option.harmless("finish_timeout_s", finish_timeout);
    option.harmless("console", console);
    option.harmless("system_stats", system_stats);
    option.harmless("ranks", ranks);
    option.harmless("non_finite", non_finite);
  }
};

/// Shows the run in Weights & Biases. For `run_config::trackers`.
std::shared_ptr<tracker> wandb_tracker(wandb_options options = {},
                                       tracker_options tracking = {});

} // namespace troupe
