#include <stdexcept>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include "numbers.hpp"
#include "takes.hpp"
#include "troupe/trainers/torch/metrics/classification/counts.hpp"

namespace troupe::internal::bench {

namespace {

constexpr int warm_up = 5;
constexpr int rounds = 60;
constexpr std::int64_t samples = 10000;
constexpr std::int64_t classes = 100;

/// A lower bound for the accuracy of every class: counts how often each class
/// was right, predicted and the target.
class bare_accuracy {
public:
  void update(const at::Tensor& logits, const at::Tensor& target) {
    c10::NoGradGuard no_grad;
    auto preds = logits.argmax(1);
    auto right = target.masked_select(preds.eq(target));
    counts_ += at::stack({at::bincount(right, {}, classes),
                          at::bincount(preds, {}, classes),
                          at::bincount(target, {}, classes)});
  }

  double value() const {
    return counts_[0].sum().item<double>() / counts_[2].sum().item<double>();
  }

private:
  at::Tensor counts_ = at::zeros({3, classes}, at::kLong);
};

} // namespace

figure metric_update(workplace&) {
  auto logits = at::randn({samples, classes});
  auto target = at::randint(classes, {samples}, at::kLong);
  accuracy ours{multiclass_task{.num_classes = classes}};
  bare_accuracy bare;
  std::vector<double> times;
  std::vector<double> reference;
  auto time = [&](auto& metric, std::vector<double>& result) {
    auto begin = now();
    metric.update(logits, target);
    result.push_back(now() - begin);
  };
  for (int round = 0; round < warm_up + rounds; ++round) {
    if (round == warm_up) {
      times.clear();
      reference.clear();
    }
    // Take turns: a periodic disturbance would always hit the same one.
    if (round % 2 == 0)
      time(ours, times);
    time(bare, reference);
    if (round % 2 == 1)
      time(ours, times);
  }
  if (ours.value() != bare.value())
    throw std::runtime_error{"the accuracies differ"};
  return {median(times) * 1e6, median(reference) * 1e6};
}

} // namespace troupe::internal::bench
