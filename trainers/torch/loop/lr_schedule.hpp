#pragma once

#include <cstdint>
#include <functional>

#include "troupe/trainers/torch/loop/schedule_interval.hpp"

namespace troupe {

/// The learning rate of every parameter group over time, as a multiple of what
/// `configure_optimizers` set: Python's `LambdaLR`.
///
/// A function of the count alone, so a checkpoint holds what it multiplies and
/// nothing of it, and a resumed run goes on exactly. As with `LambdaLR`, a
/// learning rate that a hook sets counts until the schedule advances, which
/// does not start from it.
struct lr_schedule {
  /// Called with the number of finished epochs or optimizer steps, 0 at the
  /// start. Empty: the learning rate is left alone.
  std::function<double(std::int64_t count)> factor;
  schedule_interval interval = schedule_interval::epoch;
};

} // namespace troupe
