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

  /// Where the states are; all are on one device.
  at::Device device() const;

  /// Moves all states to *device*.
  void to(at::Device device);

  /// Adds *from*, with *combine(into, from)* for states with updates on both
  /// sides: without updates there is nothing to combine.
  template <class Combine>
  void add(const metric_states& from, Combine&& combine) {
    if (from.updates == 0)
      return;
    if (updates > 0)
      combine(*this, from);
    else
      items = from.items;
    updates += from.updates;
    ++revision;
  }
};

/// *x*, copied if anything else shares its memory: no one who writes there
/// changes the result.
at::Tensor unshared(at::Tensor x);

/// Adds *from* to *into*, item by item, by their reductions. The numbers of
/// updates stay as they are.
void combine_by_reduction(metric_states& into, const metric_states& from);

} // namespace troupe
