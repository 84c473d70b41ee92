#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "troupe/trainers/torch/loop/loop_callback.hpp"
#include "troupe/trainers/torch/loop/loop_log.hpp"
#include "troupe/trainers/torch/loop/loop_optimizer.hpp"
#include "troupe/trainers/torch/visit_tensors.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe {

class epoch_loop;

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

/// A model with all that training it takes, for an `epoch_loop`.
///
///   struct net : troupe::training_module<std::pair<at::Tensor, at::Tensor>> {
///     torch::nn::Linear layer = register_module("layer", {784, 10});
///
///     at::Tensor training_step(batch& x, std::int64_t) override {
///       auto loss = torch::cross_entropy_loss(layer(x.first), x.second);
///       log("loss", loss);
///       return loss;
///     }
///     troupe::loop_optimizer configure_optimizers() override {
///       return std::make_shared<troupe::fused_adam>(parameters());
///     }
///   };
///
/// *Batch* is what the training loader gives, *ValidationBatch* what that of
/// validation gives.
template <class Batch, class ValidationBatch = Batch>
class training_module : public loop_module {
public:
  using batch = Batch;
  using validation_batch = ValidationBatch;
  using loop_module::loop_module;

  /// The loss of this rank's batch: one number with its graph.
  virtual at::Tensor training_step(batch& x, std::int64_t batch_index) = 0;

  /// Called in evaluation mode, without gradients. Must be overridden if there
  /// is a loader for validation.
  virtual void validation_step(validation_batch&, std::int64_t) {
    throw train_error{{ec::invalid_argument,
                       "fit() was given a loader for validation, but module "
                         + name() + " has no validation_step"}};
  }

  virtual void on_train_batch_start(batch&, std::int64_t) {}
  /// *loss* is what `training_step` returned, without its graph.
  virtual void on_train_batch_end(const at::Tensor& /*loss*/, batch&,
                                  std::int64_t) {}
  virtual void on_validation_batch_start(validation_batch&, std::int64_t) {}
  virtual void on_validation_batch_end(validation_batch&, std::int64_t) {}

  /// Brings a batch to the rank's device, in place.
  virtual void transfer_batch(batch& x, at::Device device) { move(x, device); }
  virtual void transfer_validation_batch(validation_batch& x,
                                         at::Device device) {
    move(x, device);
  }

private:
  template <class T>
  static void move(T& x, at::Device device) {
    internal::visit_tensors(x, [device](at::Tensor& t) { t = t.to(device); });
  }
};

} // namespace troupe
