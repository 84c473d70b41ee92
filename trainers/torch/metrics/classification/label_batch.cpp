#include "troupe/trainers/torch/metrics/classification/label_batch.hpp"

#include <ATen/Functions.h>

namespace troupe::internal {

namespace {

[[noreturn]] void refuse_shapes(const std::string& metric,
                                const at::Tensor& preds,
                                const at::Tensor& target,
                                const std::string& expected) {
  refuse_metric(metric, "predictions of shape ", preds.sizes(),
                " and targets of shape ", target.sizes(), ", but ", expected);
}

/// Whether *preds* has a dimension of classes: scores instead of labels.
bool has_scores(const at::Tensor& preds, const at::Tensor& target) {
  return preds.dim() == target.dim() + 1;
}

void check_multiclass(const std::string& metric, std::int64_t classes,
                      const at::Tensor& preds, const at::Tensor& target) {
  auto floats = at::isFloatingType(preds.scalar_type());
  if (has_scores(preds, target) && floats && target.dim() > 0
      && preds.size(1) == classes && preds.size(0) == target.size(0)
      && preds.sizes().slice(2) == target.sizes().slice(1))
    return;
  if (preds.sizes() != target.sizes() || floats)
    refuse_shapes(metric, preds, target,
                  c10::str("targets N x ... take labels of the same shape, or "
                           "scores N x ",
                           classes, " x ..."));
}

void check_shapes(const std::string& metric, const classification_task& task,
                  const at::Tensor& preds, const at::Tensor& target) {
  if (!at::isIntegralType(target.scalar_type(), true))
    refuse_metric(metric, "targets are labels, but have type ",
                  target.scalar_type());
  if (is_multiclass(task))
    return check_multiclass(metric, columns_of(task), preds, target);
  if (preds.sizes() != target.sizes())
    refuse_shapes(metric, preds, target, "both must be the same");
  auto* labels = std::get_if<multilabel_task>(&task);
  if (labels && (target.dim() < 2 || target.size(1) != labels->num_labels))
    refuse_shapes(metric, preds, target,
                  c10::str("they must be N x ", labels->num_labels, " x ..."));
}

/// *x* of shape N x columns x ... as elements x columns.
at::Tensor by_column(const at::Tensor& x, const classification_task& task) {
  if (is_binary(task))
    return x.reshape({-1, 1});
  return x.movedim(1, -1).reshape({-1, columns_of(task)});
}

/// Widens scores of half precision; others keep their type, so that equal ones
/// stay equal. On the CPU, where that does not wait for a device, warns of NaN
/// and throws on probabilities outside [0, 1].
at::Tensor checked_scores(const std::string& metric,
                          const classification_task& task, at::Tensor scores) {
  if (at::isReducedFloatingType(scores.scalar_type()))
    scores = scores.to(at::kFloat);
  if (!scores.is_cpu())
    return scores;
  if (scores.isnan().any().item<bool>())
    warn_metric(metric, "a score is NaN, and counts as below every threshold");
  if (score_kind_of(task) == score_kind::probabilities
      && any_outside(scores).item<bool>())
    refuse_metric(metric,
                  "scores are probabilities, but one lies outside [0, 1]");
  return scores;
}

/// Elements x columns: 1 where a score is above the threshold, or *preds*
/// itself if it has labels.
at::Tensor above_threshold(const std::string& metric,
                           const classification_task& task,
                           const at::Tensor& preds) {
  auto columns = by_column(preds, task);
  if (!at::isFloatingType(preds.scalar_type()))
    return columns.to(at::kLong);
  auto* labels = std::get_if<multilabel_task>(&task);
  auto threshold =
    labels ? labels->threshold : std::get<binary_task>(task).threshold;
  return as_probabilities(task, checked_scores(metric, task, columns))
    .gt(threshold)
    .to(at::kLong);
}

/// The class of the highest score of each row, or the target if that is among
/// the top *k*.
at::Tensor best(const at::Tensor& scores, const at::Tensor& target,
                std::int64_t top_k) {
  if (top_k == 1)
    return std::get<1>(scores.max(1)); // Faster than argmax on the CPU.
  auto top = std::get<1>(scores.topk(top_k, 1));
  return at::where(top.eq(target.unsqueeze(1)).any(1), target,
                   top.select(1, 0));
}

/// *x* as samples x positions.
at::Tensor by_sample(const at::Tensor& x, const at::Tensor& target) {
  auto samples = target.dim() > 0 ? target.size(0) : 1;
  return x.reshape({samples, samples > 0 ? target.numel() / samples : 1});
}

at::Tensor decided(const std::string& metric, const classification_task& task,
                   const at::Tensor& preds, const at::Tensor& target) {
  auto* classes = std::get_if<multiclass_task>(&task);
  if (!classes)
    return above_threshold(metric, task, preds);
  if (has_scores(preds, target))
    return by_sample(
      best(by_column(preds, task), target.reshape({-1}), classes->top_k),
      target);
  if (classes->top_k > 1)
    refuse_metric(metric, "top_k takes scores, but predictions are labels");
  return by_sample(preds, target).to(at::kLong);
}

} // namespace

at::Tensor any_outside(const at::Tensor& scores) {
  return scores.lt(0).logical_or(scores.gt(1)).any();
}

at::Tensor as_probabilities(const classification_task& task,
                            const at::Tensor& scores) {
  auto normalized = [&] {
    return is_multiclass(task) ? scores.softmax(1) : scores.sigmoid();
  };
  if (auto kind = score_kind_of(task))
    return *kind == score_kind::logits ? normalized() : scores;
  auto outside = any_outside(scores);
  if (!scores.is_cpu())
    return at::where(outside, normalized(), scores);
  return outside.item<bool>() ? normalized() : scores;
}

at::Tensor no_range() {
  return at::zeros({2}, at::kLong);
}

at::Tensor range_of(const at::Tensor& labels) {
  if (labels.numel() == 0)
    return no_range().to(labels.device());
  auto [lowest, highest] = at::aminmax(labels);
  return at::stack({-lowest, highest});
}

void check_range(const std::string& metric, const at::Tensor& range,
                 std::int64_t classes) {
  auto on_cpu = range.cpu();
  auto lowest = -on_cpu[0].item<std::int64_t>();
  auto highest = on_cpu[1].item<std::int64_t>();
  if (lowest >= 0 && highest < classes)
    return;
  refuse_metric(metric, "label ", lowest < 0 ? lowest : highest,
                " is not one of the ", classes, " classes 0 to ", classes - 1);
}

label_batch make_label_batch(const std::string& metric,
                             const classification_task& task,
                             const at::Tensor& preds,
                             const at::Tensor& target) {
  check_shapes(metric, task, preds, target);
  label_batch result;
  auto labels = target.to(at::kLong);
  result.preds = decided(metric, task, preds, labels);
  result.target =
    is_multiclass(task) ? by_sample(labels, labels) : by_column(labels, task);
  if (auto ignored = ignore_index_of(task)) {
    result.counted = result.target.ne(*ignored);
    result.target = result.target.mul(result.counted);
  }
  result.range = range_of(result.target);
  if (!at::isFloatingType(preds.scalar_type()))
    result.range = at::maximum(result.range, range_of(result.preds));
  auto classes = classes_of(task);
  if (target.is_cpu()) {
    check_range(metric, result.range, classes);
  } else {
    result.preds = result.preds.clamp(0, classes - 1);
    result.target = result.target.clamp(0, classes - 1);
  }
  return result;
}

score_batch keep_scores(const std::string& metric,
                        const classification_task& task,
                        const at::Tensor& preds, const at::Tensor& target) {
  check_shapes(metric, task, preds, target);
  if (!at::isFloatingType(preds.scalar_type()))
    refuse_metric(metric, "predictions are scores, but have type ",
                  preds.scalar_type());
  score_batch result;
  result.scores = checked_scores(metric, task, by_column(preds, task));
  result.target = target.to(at::kLong);
  result.target = is_multiclass(task) ? result.target.reshape({-1})
                                      : by_column(result.target, task);
  auto ignored = ignore_index_of(task);
  auto counted = ignored ? result.target.ne(*ignored) : at::Tensor{};
  auto real = ignored ? result.target.mul(counted) : result.target;
  result.range = range_of(real);
  if (target.is_cpu())
    check_range(metric, result.range, classes_of(task));
  else
    real = real.clamp(0, classes_of(task) - 1);
  result.target = ignored ? at::where(counted, real, -1) : real;
  return result;
}

label_metric::label_metric(std::string name, classification_task task)
  : name_(std::move(name)), task_(std::move(task)),
    range_(add_state("label_range", metric_reduction::max, no_range())) {
  check_task(name_, task_);
}

void label_metric::add(const at::Tensor& preds, const at::Tensor& target) {
  auto batch = make_label_batch(name_, task_, preds, target);
  state(range_) = at::maximum(state(range_), batch.range);
  count(batch);
}

at::Tensor label_metric::result() const {
  check_range(name_, state(range_), classes_of(task_));
  return score();
}

} // namespace troupe::internal
