#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <utility>

#include "troupe/trainers/data_parallel_trainer.hpp"
#include "troupe/trainers/torch/groups/torch_config.hpp"

namespace troupe {

class train_context;

namespace internal {

/// Gives a loop its data plane.
struct torch_backend {
  torch_config config;

  /// Makes CUDA usable in a rank that has GPUs. Called before the rank's hooks:
  /// LibTorch disables CUDA for good if a seed needs it before its library is
  /// loaded.
  void prepare(train_context& context) const;

  /// Runs *loop* with a group and a device in the slot for a data plane. Throws
  /// what the loop throws; errors of LibTorch without their C++ stack.
  void run(train_context& context, const std::function<void()>& loop) const;

  template <class Archive>
  void serialize(Archive& archive) {
    auto kind = static_cast<std::uint8_t>(config.backend);
    auto timeout_ms = static_cast<std::int64_t>(config.timeout.count());
    archive(kind, timeout_ms, config.encrypt_gradients);
    config.backend = static_cast<backend>(kind);
    config.timeout = std::chrono::milliseconds{timeout_ms};
  }
};

} // namespace internal

/// How a `torch_trainer` runs its loop.
struct torch_options {
  scaling_config scaling;
  run_config run;
  torch_config torch;

  /// For `parse_config`: ranks of a program that is to use all GPUs.
  friend expected<int> count_gpus(const torch_options&);
};

/// A `data_parallel_trainer` whose ranks have a c10d group and a device: what
/// `prepare_model` and `prepare_data_loader` work with.
class torch_trainer : public data_parallel_trainer {
public:
  template <class F>
  explicit torch_trainer(F loop, torch_options options = {})
    : torch_trainer(std::move(loop), internal::no_config{},
                    std::move(options)) {}

  template <class F, class Config>
    requires(!std::same_as<Config, torch_options>)
  torch_trainer(F loop, const Config& config, torch_options options = {})
    : data_parallel_trainer(internal::run_request{
      std::move(options.scaling), std::move(options.run),
      internal::train_loop::make(
        std::move(loop), internal::torch_backend{options.torch}, config)}) {}
};

} // namespace troupe
