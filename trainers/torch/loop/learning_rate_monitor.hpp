#pragma once

#include <optional>

#include "troupe/trainers/torch/loop/loop_callback.hpp"
#include "troupe/trainers/torch/loop/schedule_interval.hpp"

namespace troupe {

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
