#pragma once

#include <cstdint>
#include <optional>

namespace troupe {

/// How `log` treats a value. Defaults are Lightning's.
///
/// A value that is kept both per step and per epoch has three names: `x_step`,
/// `x_epoch`, and `x`, which is the latest of the two.
struct log_options {
  /// The value counts at once, as it is. Unset: in a training batch only.
  std::optional<bool> on_step = {};
  /// The mean over the epoch counts, at its end. Unset: everywhere but in a
  /// training batch. At the end of an epoch a value counts at once.
  std::optional<bool> on_epoch = {};
  /// The mean over all ranks instead of this rank's. On every step it costs a
  /// collective, so that every rank must log it in the same batches; an epoch's
  /// means travel together, once, and ranks may have different batches.
  bool sync_dist = false;
  /// Weight of the value in the mean over the epoch. Unset: the size of the
  /// batch, which is the first dimension of its first tensor.
  std::optional<std::int64_t> batch_size = {};
};

} // namespace troupe
