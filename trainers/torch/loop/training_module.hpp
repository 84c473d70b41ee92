#pragma once

#include <cstdint>

#include "troupe/trainers/torch/loop/loop_module.hpp"
#include "troupe/trainers/torch/visit_tensors.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe {

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
    visit_tensors(x, [device](at::Tensor& t) { t = t.to(device); });
  }
};

} // namespace troupe
