#pragma once

#include <cstdint>
#include <memory>

#include "troupe/trainers/torch/torch_config.hpp"

namespace troupe {

class train_context;

/// Gives a loop its data plane: builds the group before the loop and takes it
/// down after.
struct torch_backend {
  torch_config config;

  /// The data plane lives as long as what this returns. Throws `train_error`.
  std::shared_ptr<void> start(train_context& context) const;

  template <class Archive>
  void serialize(Archive& archive) {
    auto kind = static_cast<std::uint8_t>(config.backend);
    auto timeout_ms = static_cast<std::int64_t>(config.timeout.count());
    archive(kind, timeout_ms);
    config.backend = static_cast<backend>(kind);
    config.timeout = std::chrono::milliseconds{timeout_ms};
  }
};

} // namespace troupe
