#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

namespace troupe {

/// What scores are.
enum class score_kind {
  logits,        ///< Unbounded; softmax or sigmoid makes them probabilities.
  probabilities, ///< In [0, 1]; those of several classes sum to 1.
};

/// Each element is of the positive class (1) or not (0).
///
/// Predictions have the shape of the targets. Those of a float type are scores.
struct binary_task {
  double threshold = 0.5; ///< Scores above it are positive.
  std::optional<std::int64_t> ignore_index = {}; ///< Target to leave out.
  /// Unset: scores are logits if any lies outside [0, 1], of a batch or, for an
  /// exact curve, of all. A batch of logits may lie inside by chance, so set
  /// this where possible.
  std::optional<score_kind> scores = {};
};

/// Each element is of one of several classes, 0 to `num_classes` - 1.
///
/// Predictions are labels of the targets' shape N x ..., or scores (logits or
/// probabilities) of shape N x num_classes x ..., where the highest score is
/// the prediction; the first of equal ones.
struct multiclass_task {
  std::int64_t num_classes = 0;
  std::int64_t top_k = 1; ///< Right if the target is among the top *k* scores.
  std::optional<std::int64_t> ignore_index = {};
  std::optional<score_kind> scores = {}; ///< As of a binary task.
};

/// Each element has any number of labels, each decided as in a binary task.
///
/// Predictions and targets have the shape N x num_labels x ....
struct multilabel_task {
  std::int64_t num_labels = 0;
  double threshold = 0.5;
  std::optional<std::int64_t> ignore_index = {};
  std::optional<score_kind> scores = {}; ///< As of a binary task.
};

/// What is predicted, and what predictions look like.
using classification_task =
  std::variant<binary_task, multiclass_task, multilabel_task>;

/// How the scores of several classes or labels become one.
enum class average {
  micro,    ///< Of the counts of all classes together.
  macro,    ///< The mean over the classes that occur.
  weighted, ///< The mean, weighted by the number of targets of a class.
  none,     ///< Not averaged: the value is a vector.
};

namespace internal {

/// Throws in the name of *metric* if *task* is invalid: a threshold outside
/// [0, 1], fewer than two classes or one label, or `top_k` out of range.
void check_task(const std::string& metric, const classification_task& task);

} // namespace internal

/// Describes *task* completely, for the keys of states.
std::string to_string(const classification_task& task);

namespace internal {

/// *x* with all digits: different numbers have different texts.
std::string exact_text(double x);

bool is_binary(const classification_task& task);

bool is_multiclass(const classification_task& task);

/// Number of classes or labels that are counted apart; 1 for a binary task.
std::int64_t columns_of(const classification_task& task);

/// Number of values that a target may have.
std::int64_t classes_of(const classification_task& task);

std::optional<std::int64_t> ignore_index_of(const classification_task& task);

std::optional<score_kind> score_kind_of(const classification_task& task);

} // namespace internal

} // namespace troupe
