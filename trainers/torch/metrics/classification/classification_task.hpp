#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

namespace troupe {

/// What scores are.
enum class score_kind {
  logits,        ///< Softmax or sigmoid makes probabilities of them.
  probabilities, ///< They are as they are; of several classes they sum to 1.
};

/// Each element is of the positive class (1) or not (0).
///
/// Predictions have the shape of the targets. Those of a float type are scores.
struct binary_task {
  double threshold = 0.5; ///< Positive are scores above it.
  std::optional<std::int64_t> ignore_index = {}; ///< Target that never counts.
  /// Unset: scores are logits if any lies outside [0, 1], of a batch or, for an
  /// exact curve, of all. A batch of logits may lie inside by chance: better
  /// say what they are.
  std::optional<score_kind> scores = {};
};

/// Each element is of one of several classes, 0 to `num_classes` - 1.
///
/// Predictions are labels of the targets' shape N x ..., or scores (logits or
/// probabilities) of shape N x num_classes x ..., of which the highest decides;
/// the first among equals.
struct multiclass_task {
  std::int64_t num_classes = 0;
  std::int64_t top_k = 1; ///< Right if the target is among the top *k* scores.
  std::optional<std::int64_t> ignore_index = {};
  std::optional<score_kind> scores = {}; ///< As of a binary task.
};

/// Each element has any of several labels, each decided as in a binary task.
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

/// Refuses, in the name of *metric*, a task that nothing can be predicted in.
void check_task(const std::string& metric, const classification_task& task);

/// All of *task* in words, for the keys of states.
std::string to_string(const classification_task& task);

bool is_multiclass(const classification_task& task);

/// Number of classes or labels that are counted apart; 1 for a binary task.
std::int64_t columns_of(const classification_task& task);

/// Number of values that a target may have.
std::int64_t classes_of(const classification_task& task);

std::optional<std::int64_t> ignore_index_of(const classification_task& task);

std::optional<score_kind> score_kind_of(const classification_task& task);

} // namespace troupe
