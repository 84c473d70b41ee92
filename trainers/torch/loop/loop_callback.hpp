#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include <ATen/core/Tensor.h>

#include "troupe/runtime/metrics/metrics.hpp"
#include "troupe/trainers/torch/loop/callback_phase.hpp"
#include "troupe/trainers/torch/loop/loop_checkpoint.hpp"

namespace troupe {

class epoch_loop;
class loop_optimizer;

/// Hooks into an `epoch_loop`, in the order in which Lightning calls them
/// (docs/epoch_loop.md has the list). Runs on every rank, on the thread of the
/// train loop; a callback's hook is called before the module's. What a hook
/// throws ends the fit.
class loop_callback {
public:
  virtual ~loop_callback() = default;

  virtual void setup(epoch_loop&) {}
  virtual void on_fit_start(epoch_loop&) {}
  /// Around the few batches of validation before training.
  virtual void on_sanity_check_start(epoch_loop&) {}
  virtual void on_sanity_check_end(epoch_loop&) {}

  virtual void on_train_start(epoch_loop&) {}
  virtual void on_train_epoch_start(epoch_loop&) {}
  virtual void on_train_batch_start(epoch_loop&, std::int64_t /*batch_index*/) {
  }
  virtual void on_before_zero_grad(epoch_loop&, loop_optimizer&) {}
  /// *loss* is what backward starts from.
  virtual void on_before_backward(epoch_loop&, const at::Tensor& /*loss*/) {}
  virtual void on_after_backward(epoch_loop&) {}
  /// Gradients are complete and not clipped yet.
  virtual void on_before_optimizer_step(epoch_loop&, loop_optimizer&) {}
  /// *loss* is what `training_step` returned, without its graph.
  virtual void on_train_batch_end(epoch_loop&, const at::Tensor& /*loss*/,
                                  std::int64_t /*batch_index*/) {}

  virtual void on_validation_start(epoch_loop&) {}
  virtual void on_validation_epoch_start(epoch_loop&) {}
  virtual void on_validation_batch_start(epoch_loop&,
                                         std::int64_t /*batch_index*/) {}
  virtual void on_validation_batch_end(epoch_loop&,
                                       std::int64_t /*batch_index*/) {}
  virtual void on_validation_epoch_end(epoch_loop&) {}
  virtual void on_validation_end(epoch_loop&) {}

  /// The epoch's means are in `callback_metrics()`. See `phase`.
  virtual void on_train_epoch_end(epoch_loop&) {}
  virtual void on_train_end(epoch_loop&) {}
  virtual void on_fit_end(epoch_loop&) {}
  /// Not called after an exception.
  virtual void teardown(epoch_loop&) {}

  /// The fit ends by *what*, which it then throws: a failure, or `run_stopped`.
  /// Other ranks may be in the middle of a batch: no collective can be used.
  virtual void on_exception(epoch_loop&, const std::exception_ptr& /*what*/) {}

  virtual void on_save_checkpoint(epoch_loop&, loop_checkpoint&) {}
  virtual void on_load_checkpoint(epoch_loop&, const loop_checkpoint&) {}

  /// What is saved of this callback, and given back to it on every rank before
  /// a resumed fit. Rank 0's is saved.
  virtual metrics state_dict() const { return {}; }
  virtual void load_state_dict(const metrics&) {}

  /// The state's name in a checkpoint; the type's name unless overridden. Two
  /// callbacks of one loop that have a state need different ones.
  virtual std::string state_key() const;

  virtual callback_phase phase() const { return callback_phase::usual; }
};

} // namespace troupe
