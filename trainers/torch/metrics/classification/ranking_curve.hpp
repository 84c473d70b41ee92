#pragma once

#include <ATen/core/Tensor.h>

namespace troupe {

/// How many elements of a class, and of others, are found above each of some
/// thresholds, from the highest on. All double.
struct ranking_curve {
  at::Tensor true_positives;  ///< 1-d, never descending.
  at::Tensor false_positives; ///< As long.
  at::Tensor positives;       ///< 0-d: elements of the class.
  at::Tensor negatives;       ///< 0-d: others.
};

/// The curve with a threshold at each of *scores*, and one above them all.
/// *positive* (bool) tells which elements are of the class; both 1-d.
ranking_curve exact_curve(const at::Tensor& scores, const at::Tensor& positive);

/// The curve of elements that were counted by the number of thresholds (0 to
/// their number) they reach.
ranking_curve binned_curve(const at::Tensor& positives_by_bin,
                           const at::Tensor& negatives_by_bin);

} // namespace troupe
