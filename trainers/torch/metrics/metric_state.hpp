#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace troupe {

/// How two values of a state are combined: those of two ranks, or those of the
/// batches so far and of the next batch.
enum class metric_reduction {
  sum,
  mean, ///< Weighted by the number of updates.
  min,
  max,
  cat, ///< Concatenation along dimension 0, in order of rank.
};

/// One value that a metric accumulates over updates.
///
/// Its tensors are replaced, never written to, so that copies can share them.
struct metric_state {
  std::string name;
  metric_reduction reduction = metric_reduction::sum;
  at::Tensor initial; ///< After a reset; for cat empty, of the right type.
  at::Tensor value;   ///< Except for cat.
  std::vector<at::Tensor> parts; ///< For cat, in order of the updates.

  /// The value; for cat, all parts as one tensor.
  at::Tensor whole() const;

  /// Replaces the value or all parts by *x*.
  void assign(at::Tensor x);

  void reset();
};

/// All states of a metric, or of several metrics that share them.
struct metric_states {
  std::vector<metric_state> items;
  std::int64_t updates = 0;   ///< Since the last reset.
  std::uint64_t revision = 0; ///< Changes with every change of the states.

  void reset();

  /// The device of all states.
  at::Device device() const;

  /// Moves all states to *device*.
  void to(at::Device device);

  /// Adds *from*. Calls *combine(into, from)* only if both have updates.
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

namespace internal {

/// *x*, copied if its memory is shared, so that later writes by others do not
/// change it.
at::Tensor unshared(at::Tensor x);

/// Adds *from* to *into*, state by state, by their reductions. Does not change
/// the number of updates.
void combine_by_reduction(metric_states& into, const metric_states& from);

} // namespace internal

} // namespace troupe
