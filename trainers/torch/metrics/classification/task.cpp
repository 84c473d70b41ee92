#include "troupe/trainers/torch/metrics/classification/task.hpp"

#include <limits>
#include <sstream>

#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

using namespace internal;

namespace {

std::string excluding(const std::optional<std::int64_t>& ignore_index) {
  return ignore_index ? c10::str(" without ", *ignore_index) : "";
}

struct task_checker {
  const std::string& metric;

  void operator()(const binary_task& x) const { check(x.threshold); }

  void operator()(const multiclass_task& x) const {
    if (x.num_classes < 2)
      refuse_metric(metric, "num_classes is ", x.num_classes,
                    ", but must be at least 2");
    if (x.top_k < 1 || x.top_k > x.num_classes)
      refuse_metric(metric, "top_k is ", x.top_k,
                    ", but must lie between 1 and num_classes (", x.num_classes,
                    ")");
  }

  void operator()(const multilabel_task& x) const {
    if (x.num_labels < 1)
      refuse_metric(metric, "num_labels is ", x.num_labels,
                    ", but must be at least 1");
    check(x.threshold);
  }

  void check(double threshold) const {
    if (!(threshold >= 0 && threshold <= 1))
      refuse_metric(metric, "the threshold is ", threshold,
                    ", but must lie between 0 and 1");
  }
};

struct task_describer {
  std::string operator()(const binary_task& x) const {
    return "binary above " + exact_text(x.threshold)
           + excluding(x.ignore_index);
  }

  std::string operator()(const multiclass_task& x) const {
    return c10::str("top ", x.top_k, " of ", x.num_classes)
           + excluding(x.ignore_index);
  }

  std::string operator()(const multilabel_task& x) const {
    return c10::str(x.num_labels, " labels above ", exact_text(x.threshold))
           + excluding(x.ignore_index);
  }
};

} // namespace

void internal::check_task(const std::string& metric,
                          const classification_task& task) {
  std::visit(task_checker{metric}, task);
}

std::string to_string(const classification_task& task) {
  auto result = std::visit(task_describer{}, task);
  if (auto kind = score_kind_of(task))
    result += *kind == score_kind::logits ? ", logits" : ", probabilities";
  return result;
}

std::string internal::exact_text(double x) {
  std::ostringstream result;
  result.precision(std::numeric_limits<double>::max_digits10);
  result << x;
  return result.str();
}

bool internal::is_binary(const classification_task& task) {
  return std::holds_alternative<binary_task>(task);
}

bool internal::is_multiclass(const classification_task& task) {
  return std::holds_alternative<multiclass_task>(task);
}

std::int64_t internal::columns_of(const classification_task& task) {
  if (auto* classes = std::get_if<multiclass_task>(&task))
    return classes->num_classes;
  if (auto* labels = std::get_if<multilabel_task>(&task))
    return labels->num_labels;
  return 1;
}

std::int64_t internal::classes_of(const classification_task& task) {
  return is_multiclass(task) ? columns_of(task) : 2;
}

std::optional<std::int64_t>
internal::ignore_index_of(const classification_task& task) {
  return std::visit([](auto& x) { return x.ignore_index; }, task);
}

std::optional<score_kind>
internal::score_kind_of(const classification_task& task) {
  return std::visit([](auto& x) { return x.scores; }, task);
}

} // namespace troupe
