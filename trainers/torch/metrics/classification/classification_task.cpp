#include "troupe/trainers/torch/metrics/classification/classification_task.hpp"

#include <limits>
#include <sstream>

#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

namespace {

void check(const std::string& metric, double threshold) {
  if (!(threshold >= 0 && threshold <= 1))
    refuse_metric(metric, "the threshold is " + std::to_string(threshold)
                            + ", but must lie between 0 and 1");
}

/// All digits of *x*: tasks whose thresholds differ are different tasks.
std::string text(double x) {
  std::ostringstream result;
  result.precision(std::numeric_limits<double>::max_digits10);
  result << x;
  return result.str();
}

std::string text(const std::optional<std::int64_t>& ignore_index) {
  return ignore_index ? " without " + std::to_string(*ignore_index) : "";
}

struct checker {
  const std::string& metric;

  void operator()(const binary_task& x) const { check(metric, x.threshold); }

  void operator()(const multiclass_task& x) const {
    if (x.num_classes < 2)
      refuse_metric(metric, "num_classes is " + std::to_string(x.num_classes)
                              + ", but there must be two at least");
    if (x.top_k < 1 || x.top_k > x.num_classes)
      refuse_metric(metric, "top_k is " + std::to_string(x.top_k)
                              + ", but must lie between 1 and num_classes ("
                              + std::to_string(x.num_classes) + ")");
  }

  void operator()(const multilabel_task& x) const {
    if (x.num_labels < 1)
      refuse_metric(metric, "num_labels is " + std::to_string(x.num_labels)
                              + ", but there must be one at least");
    check(metric, x.threshold);
  }
};

struct describer {
  std::string operator()(const binary_task& x) const {
    return "binary above " + text(x.threshold) + text(x.ignore_index);
  }

  std::string operator()(const multiclass_task& x) const {
    return "top " + std::to_string(x.top_k) + " of "
           + std::to_string(x.num_classes) + text(x.ignore_index);
  }

  std::string operator()(const multilabel_task& x) const {
    return std::to_string(x.num_labels) + " labels above " + text(x.threshold)
           + text(x.ignore_index);
  }
};

} // namespace

void check_task(const std::string& metric, const classification_task& task) {
  std::visit(checker{metric}, task);
}

std::string to_string(const classification_task& task) {
  auto result = std::visit(describer{}, task);
  if (auto kind = score_kind_of(task))
    result += *kind == score_kind::logits ? ", logits" : ", probabilities";
  return result;
}

bool is_multiclass(const classification_task& task) {
  return std::holds_alternative<multiclass_task>(task);
}

std::int64_t columns_of(const classification_task& task) {
  if (auto* classes = std::get_if<multiclass_task>(&task))
    return classes->num_classes;
  if (auto* labels = std::get_if<multilabel_task>(&task))
    return labels->num_labels;
  return 1;
}

std::int64_t classes_of(const classification_task& task) {
  return is_multiclass(task) ? columns_of(task) : 2;
}

std::optional<std::int64_t> ignore_index_of(const classification_task& task) {
  return std::visit([](auto& x) { return x.ignore_index; }, task);
}

std::optional<score_kind> score_kind_of(const classification_task& task) {
  return std::visit([](auto& x) { return x.scores; }, task);
}

} // namespace troupe
