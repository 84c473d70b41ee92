#pragma once

#include <cstdint>
#include <functional>

#include "troupe/trainers/torch/torch_config.hpp"

namespace troupe {

class train_context;

/// Gives a loop its data plane.
struct torch_backend {
  torch_config config;

  /// Makes CUDA usable in a rank that has GPUs. Comes before the rank's hooks:
  /// LibTorch gives CUDA up for good if a seed asks for it before its library
  /// is loaded.
  void prepare(train_context& context) const;

  /// Runs *loop* with a group and a device in `context.data_plane()`. Throws
  /// what the loop throws; errors of LibTorch without their C++ stack.
  void run(train_context& context, const std::function<void()>& loop) const;

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
