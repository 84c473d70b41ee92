#pragma once

#include <string>

#include "troupe/callbacks/wandb/wandb_options.hpp"

namespace troupe {

/// All of *x* but the key.
std::string to_json(const wandb_options& x);

/// Throws what nlohmann's JSON throws if *text* is none of `to_json`'s.
wandb_options wandb_options_from_json(const std::string& text);

} // namespace troupe
