#pragma once

#include "troupe/callbacks/tracking/tracked_run.hpp"
#include "troupe/callbacks/wandb/wandb.hpp"
#include "troupe/callbacks/wandb/wandb_records.hpp"

namespace troupe::internal {

/// The settings of one run, combined from options, train loop and W&B's
/// variables.
struct wandb_settings {
  wandb_mode mode = wandb_mode::online;
  fs::path root;   ///< The folder `wandb/`, which contains the runs' folders.
  wandb_run about; ///< Except for what differs from file to file.
};

/// `ec::invalid_config` for a mode, an id or a project name that W&B does not
/// accept; the sentence names the variable or the option.
expected<wandb_settings> make_wandb_settings(const wandb_options& options,
                                             const tracked_run& run);

/// Whether W&B's client will find a key: in the options, WANDB_API_KEY,
/// WANDB_IDENTITY_TOKEN_FILE, its settings (~/.config/wandb/settings), or for
/// the service's host in ~/.netrc.
bool has_wandb_key(const wandb_options& options);

} // namespace troupe::internal
