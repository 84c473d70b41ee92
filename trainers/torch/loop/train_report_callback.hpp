#pragma once

#include "troupe/trainers/torch/loop/loop_callback.hpp"

namespace troupe {

/// At the end of each train epoch: saves a checkpoint from which a later
/// attempt goes on, and reports the epoch's logged values with `epoch` and
/// `step` from every rank, as Ray's callback for Lightning does. Values that
/// were not logged with `sync_dist` are each rank's own.
class train_report_callback final : public loop_callback {
public:
  void on_train_epoch_end(epoch_loop& loop) override;
  callback_phase phase() const override { return callback_phase::checkpoint; }
};

} // namespace troupe
