#pragma once

#include <cstdint>
#include <string>

#include "troupe/runtime/metrics/metric_value.hpp"

namespace troupe {

/// One value of W&B's history, summary, config or system stats: a name, and
/// JSON as W&B writes it, with bare `NaN` and `Infinity`.
struct wandb_item {
  std::string key;
  std::string json;
  std::string part = {}; ///< For a value in a nested group, its name there.
};

/// Numbers keep their type and every digit; what is not UTF-8 in a text becomes
/// U+FFFD.
std::string wandb_json(const metric_value& x);

/// The same for a config, whose readers know no NaN and no infinity: `null`
/// stands for them, as W&B itself writes it.
std::string wandb_config_json(const metric_value& x);

} // namespace troupe
