#pragma once

#include <string>
#include <string_view>

#include "troupe/callbacks/tracking/tracked_run.hpp"
#include "troupe/callbacks/wandb/wandb.hpp"
#include "troupe/callbacks/wandb/wandb_records.hpp"

namespace troupe {

/// The name of *x* in options.
const char* text_of(wandb_mode x);

/// The inverse. Throws `std::invalid_argument`.
void read_option(std::string_view text, wandb_mode& x);

/// All options except the key, as JSON.
std::string to_json(const wandb_options& x);

/// The inverse; options left out keep their default. Throws `std::exception`
/// for a text that `to_json` cannot have written.
wandb_options wandb_options_from_json(const std::string& text);

/// What options, train loop and W&B's variables say together about one run.
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
/// WANDB_IDENTITY_TOKEN_FILE, or for the service's host in ~/.netrc.
bool has_wandb_key(const wandb_options& options);

} // namespace troupe
