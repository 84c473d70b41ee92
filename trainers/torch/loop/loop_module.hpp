#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "troupe/trainers/torch/loop/log_options.hpp"
#include "troupe/trainers/torch/loop/loop_checkpoint.hpp"
#include "troupe/trainers/torch/loop/loop_optimizer.hpp"

namespace troupe {

class epoch_loop;
class loop_callback;

/// The part of a `training_module` that does not know the type of its batches:
/// a `torch::nn::Module` with hooks. Hooks are called on every rank, after the
/// callbacks' hooks of the same name.
class loop_module : public torch::nn::Module {
public:
  using torch::nn::Module::Module;

  /// Callbacks of this module, beside those of the loop.
  virtual std::vector<std::shared_ptr<loop_callback>> configure_callbacks();
  /// Called by local rank 0 of each host alone, such as to fetch data; the
  /// other ranks wait for its end. Members set here are unset elsewhere.
  virtual void prepare_data() {}
  virtual void setup() {}
  /// Layers that are registered here are trained too.
  virtual void configure_model() {}
  /// Called when the parameters are on the rank's device. Must be overridden.
  virtual loop_optimizer configure_optimizers();
  virtual void teardown() {}

  virtual void on_fit_start() {}
  virtual void on_fit_end() {}
  virtual void on_train_start() {}
  virtual void on_train_end() {}
  virtual void on_train_epoch_start() {}
  virtual void on_train_epoch_end() {}
  virtual void on_validation_start() {}
  virtual void on_validation_end() {}
  virtual void on_validation_epoch_start() {}
  virtual void on_validation_epoch_end() {}
  virtual void on_before_zero_grad(loop_optimizer&) {}
  virtual void on_before_backward(const at::Tensor& /*loss*/) {}
  virtual void on_after_backward() {}
  virtual void on_before_optimizer_step(loop_optimizer&) {}
  virtual void on_save_checkpoint(loop_checkpoint&) {}
  virtual void on_load_checkpoint(const loop_checkpoint&) {}

  /// Keeps *value*, a tensor of one element, under *name*. Waits for no device.
  /// Throws `train_error` outside of the epochs of a fit.
  void log(const std::string& name, const at::Tensor& value,
           const log_options& options = {});
  void log(const std::string& name, double value,
           const log_options& options = {});

  /// The loop that trains this module; throws `train_error` outside of a fit.
  epoch_loop& loop() const;

private:
  friend class epoch_loop;

  epoch_loop* loop_ = nullptr;
};

} // namespace troupe
