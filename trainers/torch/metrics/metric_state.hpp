#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace troupe {

/// How two values of a state become one: those of two ranks, or those of the
/// batches so far and of the next one.
enum class metric_reduction {
  sum,
  mean, ///< Weighted by the number of updates behind each.
  min,
  max,
  cat, ///< Along dimension 0, in order of rank.
};

/// One thing that a metric remembers between updates.
///
/// Its tensors are replaced, never written to, so that snapshots share them.
struct metric_state {
  std::string name;
  metric_reduction reduction = metric_reduction::sum;
  at::Tensor initial; ///< After a reset; for cat: empty, of the right type.
  at::Tensor value;   ///< Of every reduction but cat.
  std::vector<at::Tensor> parts; ///< Of cat, in order of the updates.

  /// The value; of cat, all parts as one tensor.
  at::Tensor whole() const;

  /// Makes *x* the whole of this state.
  void assign(at::Tensor x);

  void reset();
};

/// All that a metric, or several metrics that share it, remember.
struct metric_states {
  std::vector<metric_state> items;
  std::int64_t updates = 0;   ///< Since the last reset.
  std::uint64_t revision = 0; ///< Another one after each change.

  void reset();

  /// Moves what is not on *device* there.
  void to(at::Device device);
};

/// Adds *from* to *into*, item by item, by their reductions.
void combine_by_reduction(metric_states& into, const metric_states& from);

} // namespace troupe
