#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "troupe/runtime/metrics/metrics.hpp"
#include "troupe/trainers/torch/files/tensor_map.hpp"
#include "troupe/trainers/torch/loop/loop_optimizer.hpp"

namespace troupe {

/// When a callback's `on_train_epoch_end` is called.
enum class callback_phase {
  usual,      ///< Before the module's.
  monitor,    ///< After it, to see what the module logs there.
  checkpoint, ///< Last of all, to save what the others have become.
};

/// What hooks add to a loop's checkpoint, and find there again. Names are
/// shared by all hooks. What rank 0 adds is saved.
struct loop_checkpoint {
  tensor_map tensors;
  metrics values;
};

class epoch_loop;

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

/// At the end of each train epoch: saves a checkpoint from which a later
/// attempt resumes, and reports the epoch's logged values with `epoch` and
/// `step` from every rank, as Ray's callback for Lightning does; but none of an
/// earlier epoch, which would be a score of other weights. Values that were not
/// logged with `sync_dist` are each rank's own.
class train_report_callback final : public loop_callback {
public:
  void on_train_epoch_end(epoch_loop& loop) override;
  callback_phase phase() const override { return callback_phase::checkpoint; }
};

/// Logs the learning rate as `lr-<optimizer>`, such as `lr-fused_adam`, and
/// that of the n-th of several parameter groups as `lr-<optimizer>/pg<n>`,
/// counted from 1.
class learning_rate_monitor final : public loop_callback {
public:
  /// At the start of every batch or epoch. Unset: as often as the schedule
  /// changes it.
  explicit learning_rate_monitor(
    std::optional<schedule_interval> interval = std::nullopt)
    : interval_(interval) {}

  void on_train_epoch_start(epoch_loop& loop) override;
  void on_train_batch_start(epoch_loop& loop, std::int64_t index) override;

private:
  void log(epoch_loop& loop, schedule_interval now) const;

  std::optional<schedule_interval> interval_;
};

} // namespace troupe
