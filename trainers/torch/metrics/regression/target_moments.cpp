#include "troupe/trainers/torch/metrics/regression/target_moments.hpp"

#include <array>

#include <ATen/ATen.h>

#include "troupe/trainers/torch/metrics/metric.hpp"
#include "troupe/trainers/torch/metrics/regression/multioutput.hpp"

namespace troupe {

namespace {

/// The states.
enum target_moment : std::size_t {
  mean_target,
  target_squares, ///< Sum of squared distances from the mean.
  mean_error,
  error_squares, ///< The same.
  raw_error_squares,
  sample_count,
  target_moment_count,
};

using target_moment_values = std::array<at::Tensor, target_moment_count>;

/// The mean of *x* over dimension 0: exact if all are equal, which makes their
/// variation exactly zero.
at::Tensor mean_of(const at::Tensor& x) {
  auto first = x.select(0, 0);
  return first + (x - first).mean(0);
}

/// The moments of targets *t* and errors *e*, of samples in dimension 0.
target_moment_values values_of(const at::Tensor& t, const at::Tensor& e) {
  target_moment_values result;
  result[mean_target] = mean_of(t);
  result[target_squares] = (t - result[mean_target]).square().sum(0);
  result[mean_error] = mean_of(e);
  result[error_squares] = (e - result[mean_error]).square().sum(0);
  result[raw_error_squares] = e.square().sum(0);
  result[sample_count] =
    at::full({}, t.size(0), at::TensorOptions{t.device()}.dtype(at::kLong));
  return result;
}

/// Those of the samples of *a* and *b* together.
target_moment_values combined_moments(const target_moment_values& a,
                                      const target_moment_values& b) {
  target_moment_values result;
  result[sample_count] = a[sample_count] + b[sample_count];
  // Of *b*. Integers alone would be divided in single precision.
  auto share = b[sample_count].to(at::kDouble) / result[sample_count];
  auto between = a[sample_count] * share;
  auto join = [&](target_moment mean, target_moment squares) {
    auto distance = b[mean] - a[mean];
    result[mean] = a[mean] + distance * share;
    result[squares] = a[squares] + b[squares] + distance.square() * between;
  };
  join(mean_target, target_squares);
  join(mean_error, error_squares);
  result[raw_error_squares] = a[raw_error_squares] + b[raw_error_squares];
  return result;
}

} // namespace

target_moments::target_moments() {
  for (auto name : {"mean_target", "target_squares", "mean_error",
                    "error_squares", "squared_errors"})
    add_state(name, metric_reduction::sum, at::zeros({}, at::kDouble));
  add_state("samples", metric_reduction::sum, at::zeros({}, at::kLong));
}

const at::Tensor& target_moments::target_variation() const {
  return state(target_squares);
}

const at::Tensor& target_moments::error_variation() const {
  return state(error_squares);
}

const at::Tensor& target_moments::squared_errors() const {
  return state(raw_error_squares);
}

const at::Tensor& target_moments::samples() const {
  return state(sample_count);
}

void target_moments::add(const at::Tensor& preds, const at::Tensor& target) {
  check_same_shape(preds, target);
  check_outputs(name(), target, state(mean_target), updates() == 0);
  auto t = widened(name(), target);
  auto all = values_of(t, widened(name(), preds) - t);
  if (updates() > 0) {
    target_moment_values before;
    for (std::size_t i = 0; i < target_moment_count; ++i)
      before[i] = state(i);
    all = combined_moments(before, all);
  }
  for (std::size_t i = 0; i < target_moment_count; ++i)
    state(i) = all[i];
}

void target_moments::combine(metric_states& into,
                             const metric_states& from) const {
  target_moment_values a, b;
  for (std::size_t i = 0; i < target_moment_count; ++i) {
    a[i] = into.items[i].value;
    b[i] = from.items[i].value;
  }
  auto all = combined_moments(a, b);
  for (std::size_t i = 0; i < target_moment_count; ++i)
    into.items[i].value = all[i];
}

} // namespace troupe
