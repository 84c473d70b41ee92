#include "troupe/runtime/config/checkpoint_config.hpp"

namespace troupe {

expected<void> validate(const checkpoint_config& x) {
  if (x.num_to_keep && *x.num_to_keep < 1)
    return failure(ec::invalid_config,
                   "checkpoint_config.num_to_keep must be >= 1 or unset, got "
                     + std::to_string(*x.num_to_keep));
  return {};
}

} // namespace troupe
