#include "troupe/trainers/torch/metrics/regression/pearson_corr_coef.hpp"

#include <array>
#include <cmath>
#include <limits>

#include <ATen/ATen.h>

#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

namespace {

/// The states: those of predictions (x), of targets (y), and of both.
enum : std::size_t {
  mean_x,
  mean_y,
  squares_x, ///< Sum of (x - mean)^2.
  squares_y,
  products, ///< Sum of (x - mean x) (y - mean y).
  min_x,
  max_x,
  min_y,
  max_y,
  samples,
  count_of_states,
};

using moments = std::array<at::Tensor, count_of_states>;

/// The moments of samples *x* and *y*, each [samples, outputs].
moments moments_of(const at::Tensor& x, const at::Tensor& y) {
  moments result;
  result[mean_x] = x.mean(0);
  result[mean_y] = y.mean(0);
  auto from_mean_x = x - result[mean_x];
  auto from_mean_y = y - result[mean_y];
  result[squares_x] = from_mean_x.square().sum(0);
  result[squares_y] = from_mean_y.square().sum(0);
  result[products] = (from_mean_x * from_mean_y).sum(0);
  result[min_x] = x.amin(0);
  result[max_x] = x.amax(0);
  result[min_y] = y.amin(0);
  result[max_y] = y.amax(0);
  result[samples] =
    at::full({}, x.size(0), at::TensorOptions{x.device()}.dtype(at::kLong));
  return result;
}

/// Those of the samples of *a* and *b* together.
moments together(const moments& a, const moments& b) {
  moments result;
  result[samples] = a[samples] + b[samples];
  // Of *b*. Integers alone would be divided in single precision.
  auto share = b[samples].to(at::kDouble) / result[samples];
  auto between = a[samples] * share;
  auto dx = b[mean_x] - a[mean_x];
  auto dy = b[mean_y] - a[mean_y];
  result[mean_x] = a[mean_x] + dx * share;
  result[mean_y] = a[mean_y] + dy * share;
  result[squares_x] = a[squares_x] + b[squares_x] + dx.square() * between;
  result[squares_y] = a[squares_y] + b[squares_y] + dy.square() * between;
  result[products] = a[products] + b[products] + dx * dy * between;
  result[min_x] = at::minimum(a[min_x], b[min_x]);
  result[max_x] = at::maximum(a[max_x], b[max_x]);
  result[min_y] = at::minimum(a[min_y], b[min_y]);
  result[max_y] = at::maximum(a[max_y], b[max_y]);
  return result;
}

/// The largest distance from *mean*.
at::Tensor reach(const at::Tensor& mean, const at::Tensor& min,
                 const at::Tensor& max) {
  return at::maximum(max - mean, mean - min);
}

} // namespace

pearson_corr_coef::pearson_corr_coef(std::int64_t num_outputs)
  : num_outputs_(num_outputs) {
  if (num_outputs < 1)
    refuse_metric("pearson_corr_coef", "needs at least one output, not "
                                         + std::to_string(num_outputs));
  constexpr auto infinity = std::numeric_limits<double>::infinity();
  auto add_each = [&](const char* name, metric_reduction how, double value) {
    add_state(name, how, at::full({num_outputs}, value, at::kDouble));
  };
  for (auto name : {"mean_x", "mean_y", "squares_x", "squares_y", "products"})
    add_each(name, metric_reduction::sum, 0);
  add_each("min_x", metric_reduction::min, infinity);
  add_each("max_x", metric_reduction::max, -infinity);
  add_each("min_y", metric_reduction::min, infinity);
  add_each("max_y", metric_reduction::max, -infinity);
  add_state("samples", metric_reduction::sum, at::zeros({}, at::kLong));
}

std::string pearson_corr_coef::state_key() const {
  return "pearson/" + std::to_string(num_outputs_);
}

void pearson_corr_coef::add(const at::Tensor& preds, const at::Tensor& target) {
  check_same_shape(preds, target);
  auto outputs = preds.dim() == 2 ? preds.size(1) : 1;
  if (preds.dim() < 1 || preds.dim() > 2 || outputs != num_outputs_)
    refuse_metric(name(), "takes [samples, " + std::to_string(num_outputs_)
                            + "], not " + shape_of(preds));
  auto all = moments_of(widened(name(), preds).reshape({-1, outputs}),
                        widened(name(), target).reshape({-1, outputs}));
  if (updates() > 0) {
    moments before;
    for (std::size_t i = 0; i < count_of_states; ++i)
      before[i] = state(i);
    all = together(before, all);
  }
  for (std::size_t i = 0; i < count_of_states; ++i)
    state(i) = all[i];
}

at::Tensor pearson_corr_coef::result() const {
  auto freedom = state(samples) - 1;
  auto reach_x = reach(state(mean_x), state(min_x), state(max_x));
  auto reach_y = reach(state(mean_y), state(min_y), state(max_y));
  auto variance_x = state(squares_x) / freedom / reach_x.square();
  auto variance_y = state(squares_y) / freedom / reach_y.square();
  auto covariance = state(products) / freedom / (reach_x * reach_y);
  // The bound of TorchMetrics for a side that does not vary.
  const auto bound = std::sqrt(std::numeric_limits<double>::epsilon());
  auto varies = (variance_x >= bound)
                  .logical_and(variance_y >= bound)
                  .logical_and(at::isfinite(variance_x))
                  .logical_and(at::isfinite(variance_y))
                  .logical_and(at::isfinite(covariance));
  if (!varies.all().item<bool>())
    warn_metric(name(), "predictions or targets hardly vary, so that their "
                        "correlation is NaN");
  auto correlation =
    (covariance / (variance_x * variance_y).sqrt()).clamp(-1, 1);
  return at::where(varies, correlation,
                   std::numeric_limits<double>::quiet_NaN())
    .squeeze();
}

void pearson_corr_coef::combine(metric_states& into,
                                const metric_states& from) const {
  moments a, b;
  for (std::size_t i = 0; i < count_of_states; ++i) {
    a[i] = into.items[i].value;
    b[i] = from.items[i].value;
  }
  auto all = together(a, b);
  for (std::size_t i = 0; i < count_of_states; ++i)
    into.items[i].value = all[i];
}

} // namespace troupe
