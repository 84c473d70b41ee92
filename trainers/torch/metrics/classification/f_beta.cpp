#include "troupe/trainers/torch/metrics/classification/f_beta.hpp"

#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

namespace {

count_ratio ratio(const std::string& metric, double beta) {
  if (!(beta >= 0))
    refuse_metric(metric, "beta is " + std::to_string(beta)
                            + ", but must not be negative");
  auto square = beta * beta;
  return {.of = {.true_positives = 1 + square},
          .to = {.true_positives = 1 + square,
                 .false_positives = 1,
                 .false_negatives = square},
          .top_k_of_targets = false};
}

} // namespace

f_beta::f_beta(classification_task task, double beta, score_options options)
  : f_beta("f_beta", std::move(task), beta, options) {}

f_beta::f_beta(std::string name, classification_task task, double beta,
               score_options options)
  : ratio_metric(name, std::move(task), ratio(name, beta), options) {}

} // namespace troupe
