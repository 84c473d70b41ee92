#pragma once

#include <string>

#include "troupe/callbacks/tracking/tracked_run.hpp"
#include "troupe/callbacks/wandb/wandb_options.hpp"
#include "troupe/callbacks/wandb/wandb_run.hpp"

namespace troupe {

/// What options, train loop and W&B's variables come to for one run.
struct wandb_settings {
  wandb_mode mode = wandb_mode::online;
  fs::path root;   ///< The folder `wandb/`, in which the runs' folders lie.
  wandb_run about; ///< Without what differs from file to file.
};

/// `ec::invalid_config` for a mode, an id or a project's name that W&B does not
/// take; the sentence names the variable or the setting.
expected<wandb_settings> make_wandb_settings(const wandb_options& options,
                                             const tracked_run& run);

/// Whether W&B's client will find a key: an option, WANDB_API_KEY,
/// WANDB_IDENTITY_TOKEN_FILE, or the service's host in ~/.netrc.
bool has_wandb_key(const wandb_options& options);

} // namespace troupe
