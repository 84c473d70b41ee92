#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include "troupe/trainers/torch/metrics/classification/classification_task.hpp"

namespace troupe {

/// One batch with its predictions decided: int64 labels.
///
/// Shapes are samples x positions for a multiclass task, else elements x
/// `columns_of(task)`.
struct label_batch {
  at::Tensor preds;
  at::Tensor target;  ///< 0 where it is ignored.
  at::Tensor counted; ///< Bool; undefined if nothing is ignored.
  at::Tensor range;   ///< As of `label_range`.
};

/// One batch with its scores kept.
struct score_batch {
  at::Tensor scores; ///< Elements x columns, as they were given.
  at::Tensor target; ///< int64, -1 where ignored; of a multiclass task 1-d.
  at::Tensor range;
};

/// Makes a batch of *preds* and *target*. Refuses, in the name of *metric*,
/// shapes and types that do not fit the task, and on the CPU also labels that
/// are none of its classes. On another device that would wait for it: there
/// labels are forced into the range, and `check_range` finds out.
label_batch decide(const std::string& metric, const classification_task& task,
                   const at::Tensor& preds, const at::Tensor& target);

score_batch keep_scores(const std::string& metric,
                        const classification_task& task,
                        const at::Tensor& preds, const at::Tensor& target);

/// Whether any of *scores* lies outside [0, 1], as a 0-d tensor.
at::Tensor any_outside(const at::Tensor& scores);

/// Probabilities of *scores*, elements x columns, which are what *task* says;
/// if it does not, logits if any lies outside [0, 1]. NaN stays NaN.
at::Tensor as_probabilities(const classification_task& task,
                            const at::Tensor& scores);

/// The range of no labels at all; greater ranges are `at::maximum` of smaller.
at::Tensor no_range();

/// Refuses a range, (-lowest, highest) of the labels seen, that leaves the
/// classes 0 to *classes* - 1, naming the label.
void check_range(const std::string& metric, const at::Tensor& range,
                 std::int64_t classes);

} // namespace troupe
