#pragma once

#include <string>

#include "troupe/trainers/torch/metrics/classification/label_batch.hpp"

// Scores made of the numbers of true and false positives and negatives (tp, fp,
// tn, fn) of each class or label, defined as in TorchMetrics 1.9
// (torchmetrics.classification). Every task takes its own predictions and
// targets; values are 0-d double, or of shape (classes) with `average::none`.

namespace troupe {

/// How counts become a score. A binary task has nothing to average.
struct score_options {
  troupe::average average = troupe::average::micro;
  double zero_division = 0; ///< The score of a class where it is 0 / 0.
};

/// Base of metrics of counts. Those of one task share their states in a
/// collection.
class count_metric : public internal::label_metric {
public:
  std::string state_key() const override {
    return "counts of " + to_string(task());
  }

protected:
  count_metric(std::string name, classification_task task);

  /// int64, 4 x classes: tp, fp, tn, fn.
  const at::Tensor& counts() const { return state(counts_); }

private:
  void count(const internal::label_batch& batch) final;

  std::size_t counts_;
};

/// The counts themselves: tp, fp, tn, fn and support (tp + fn).
///
/// Of shape (5), int64 for a micro average, else double, or (classes x 5),
/// int64, if nothing is averaged. A weighted mean without support is NaN.
class stat_scores : public count_metric {
public:
  explicit stat_scores(classification_task task,
                       troupe::average average = troupe::average::micro)
    : count_metric("stat_scores", std::move(task)), average_(average) {}

private:
  at::Tensor score() const override;

  troupe::average average_;
};

/// The factors of a weighted sum of counts.
struct count_weights {
  double true_positives = 0;
  double false_positives = 0;
  double true_negatives = 0;
  double false_negatives = 0;
};

/// The score of a class: a weighted sum of its counts divided by another one.
struct count_ratio {
  count_weights of;
  count_weights to;
  /// Whether a macro average of top-k predictions is over the classes that are
  /// targets, and not also over those only predicted.
  bool top_k_of_targets = true;
  /// Whether a class that is the task's `ignore_index` is left out, and not
  /// only its elements.
  bool leaves_out_ignored_class = false;
  double mean_of_none = 0; ///< The average if no class occurs.
};

/// Base of scores that are ratios of counts.
class ratio_metric : public count_metric {
protected:
  ratio_metric(std::string name, classification_task task, count_ratio ratio,
               score_options options);

private:
  at::Tensor score() const final;
  at::Tensor mean_weights(const at::Tensor& counts) const;

  count_ratio ratio_;
  score_options options_;
};

/// The fraction of elements whose label was predicted: tp / (tp + fn) for a
/// multiclass task (per class its recall), else (tp + tn) / all.
///
///   accuracy top_5{multiclass_task{.num_classes = 1000, .top_k = 5}};
class accuracy : public ratio_metric {
public:
  explicit accuracy(classification_task task,
                    troupe::average average = troupe::average::micro);
};

/// The fraction of a class's predictions that are right: tp / (tp + fp).
class precision : public ratio_metric {
public:
  explicit precision(classification_task task, score_options options = {});
};

/// The fraction of a class's elements that were found: tp / (tp + fn).
class recall : public ratio_metric {
public:
  explicit recall(classification_task task, score_options options = {});
};

/// The fraction of other classes' elements that were not predicted as this
/// class: tn / (tn + fp).
class specificity : public ratio_metric {
public:
  explicit specificity(classification_task task,
                       troupe::average average = troupe::average::micro);
};

/// The weighted harmonic mean of precision and recall:
/// (1 + beta²) tp / ((1 + beta²) tp + beta² fn + fp).
class f_beta : public ratio_metric {
public:
  /// Recall has *beta* times the weight of precision. Throws if it is negative.
  f_beta(classification_task task, double beta, score_options options = {});

protected:
  f_beta(std::string name, classification_task task, double beta,
         score_options options);
};

/// The harmonic mean of precision and recall, 2 tp / (2 tp + fn + fp).
class f1 : public f_beta {
public:
  explicit f1(classification_task task, score_options options = {});
};

/// The Jaccard index, or intersection over union: tp / (tp + fp + fn). An
/// average is NaN if no class occurs.
class jaccard : public ratio_metric {
public:
  explicit jaccard(classification_task task,
                   score_options options = {.average = average::macro});
};

/// The fraction of samples with all labels right: those at all positions of N x
/// ... in a multiclass task, those of all labels in a multilabel task. Ignored
/// positions count as right. 0 without samples.
class exact_match : public internal::label_metric {
public:
  /// Throws on a binary task.
  explicit exact_match(classification_task task);

  std::string state_key() const override {
    return "exact matches of " + to_string(task());
  }

private:
  void count(const internal::label_batch& batch) override;
  at::Tensor score() const override;

  std::size_t right_;
  std::size_t samples_;
};

} // namespace troupe
