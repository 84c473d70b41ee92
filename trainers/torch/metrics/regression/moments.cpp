#include "troupe/trainers/torch/metrics/regression/moments.hpp"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>

#include "troupe/runtime/counted.hpp"

namespace troupe {

using namespace internal;

namespace {

constexpr auto epsilon = std::numeric_limits<double>::epsilon();

/// The states of `target_moments`.
enum target_state : std::size_t {
  target_mean,
  target_deviations, // Sum of squared deviations from the mean.
  error_mean,
  error_deviations, // The same.
  error_squares,
  target_samples,
  target_state_count,
};

/// The states of `pearson_corr_coef`, of predictions (x) and targets (y).
enum pearson_state : std::size_t {
  mean_x,
  mean_y,
  squares_x, // Sum of (x - mean x)^2.
  squares_y,
  products, // Sum of (x - mean x) (y - mean y).
  min_x,
  max_x,
  min_y,
  max_y,
  pearson_samples,
  pearson_state_count,
};

/// The mean of *x* over dimension 0. Exact if all samples are equal: their
/// variation is then exactly zero.
at::Tensor exact_mean(const at::Tensor& x) {
  auto first = x.select(0, 0);
  return first + (x - first).mean(0);
}

/// The number of samples in dimension 0 of *x*, on its device.
at::Tensor sample_count(const at::Tensor& x) {
  return at::full({}, x.size(0),
                  at::TensorOptions{x.device()}.dtype(at::kLong));
}

/// Moments of the samples of *a* and *b* together, by the number of a state.
struct union_of_samples {
  union_of_samples(const std::vector<at::Tensor>& a,
                   const std::vector<at::Tensor>& b, std::size_t samples)
    : a(a), b(b), count(a[samples] + b[samples]),
      // Integers alone would be divided in single precision.
      share(b[samples].to(at::kDouble) / count), between(a[samples] * share) {}

  at::Tensor distance(std::size_t mean) const { return b[mean] - a[mean]; }

  at::Tensor mean(std::size_t mean) const {
    return a[mean] + distance(mean) * share;
  }

  /// Of *sums*: the deviations from *mean* times those from *other_mean*.
  at::Tensor deviations(std::size_t sums, std::size_t mean,
                        std::size_t other_mean) const {
    return sum(sums) + distance(mean) * distance(other_mean) * between;
  }

  at::Tensor sum(std::size_t sums) const { return a[sums] + b[sums]; }

  const std::vector<at::Tensor>& a;
  const std::vector<at::Tensor>& b;
  at::Tensor count;
  at::Tensor share; // Of *b* in the samples.
  at::Tensor between;
};

/// One value of the *scores* of all outputs, whose targets have *variances*.
at::Tensor combined_outputs(const at::Tensor& scores,
                            const at::Tensor& variances, multioutput how) {
  switch (how) {
    case multioutput::raw_values:
      return scores;
    case multioutput::uniform_average:
      return scores.mean();
    case multioutput::variance_weighted:
      break;
  }
  return (variances / variances.sum() * scores).sum();
}

/// The largest distance from *mean*.
at::Tensor reach(const at::Tensor& mean, const at::Tensor& min,
                 const at::Tensor& max) {
  return at::maximum(max - mean, mean - min);
}

std::vector<at::Tensor> values_of(const metric_states& states) {
  std::vector<at::Tensor> result;
  for (auto& item : states.items)
    result.push_back(item.value);
  return result;
}

} // namespace

void moments_metric::add(const at::Tensor& preds, const at::Tensor& target) {
  check_same_shape(preds, target);
  auto all = moments_of(preds, target);
  if (updates() > 0) {
    moments before;
    for (std::size_t i = 0; i < all.size(); ++i)
      before.push_back(state(i));
    all = together(before, all);
  }
  for (std::size_t i = 0; i < all.size(); ++i)
    state(i) = all[i];
}

void moments_metric::combine(metric_states& into,
                             const metric_states& from) const {
  auto all = together(values_of(into), values_of(from));
  for (std::size_t i = 0; i < all.size(); ++i)
    into.items[i].value = all[i];
}

target_moments::target_moments() {
  for (auto name : {"mean_target", "target_squares", "mean_error",
                    "error_squares", "squared_errors"})
    add_sum(name);
  add_count("samples");
}

const at::Tensor& target_moments::target_variation() const {
  return state(target_deviations);
}

const at::Tensor& target_moments::error_variation() const {
  return state(error_deviations);
}

const at::Tensor& target_moments::squared_errors() const {
  return state(error_squares);
}

const at::Tensor& target_moments::samples() const {
  return state(target_samples);
}

target_moments::moments
target_moments::moments_of(const at::Tensor& preds,
                           const at::Tensor& target) const {
  if (target.dim() < 1 || target.dim() > 2)
    refuse_metric(name(), "takes [samples] or [samples, outputs], not ",
                  target.sizes());
  auto outputs = state(target_mean).numel();
  if (updates() > 0 && target.numel() / target.size(0) != outputs)
    refuse_metric(name(), "had ", outputs,
                  " outputs so far, now inputs of shape ", target.sizes());
  auto t = widened(name(), target);
  auto e = widened(name(), preds) - t;
  moments result(target_state_count);
  result[target_mean] = exact_mean(t);
  result[target_deviations] = (t - result[target_mean]).square().sum(0);
  result[error_mean] = exact_mean(e);
  result[error_deviations] = (e - result[error_mean]).square().sum(0);
  result[error_squares] = e.square().sum(0);
  result[target_samples] = sample_count(t);
  return result;
}

target_moments::moments target_moments::together(const moments& a,
                                                 const moments& b) const {
  // Those of one output would be taken for those of each.
  auto outputs = [](const moments& x) { return x[target_mean].numel(); };
  if (outputs(a) != outputs(b))
    refuse_metric(name(), "had inputs with ", counted(outputs(a), "output"),
                  ", and with ", outputs(b));
  union_of_samples both{a, b, target_samples};
  moments result(target_state_count);
  result[target_mean] = both.mean(target_mean);
  result[target_deviations] =
    both.deviations(target_deviations, target_mean, target_mean);
  result[error_mean] = both.mean(error_mean);
  result[error_deviations] =
    both.deviations(error_deviations, error_mean, error_mean);
  result[error_squares] = both.sum(error_squares);
  result[target_samples] = both.count;
  return result;
}

r2_score::r2_score(options x) : options_(x) {
  if (x.adjusted < 0)
    refuse_metric(name(), "cannot be adjusted for ", x.adjusted, " regressors");
}

at::Tensor r2_score::result() const {
  constexpr double no_variation = 1e-4; // As in TorchMetrics.
  auto n = samples().item<std::int64_t>();
  if (n < 2)
    refuse_metric(name(), "needs at least two samples, has ", n);
  auto& rss = squared_errors();
  auto& tss = target_variation();
  auto scores = at::where(tss.abs() <= no_variation, 0, 1 - rss / tss);
  scores = at::where(rss.abs() <= no_variation, 1, scores);
  return adjusted(combined_outputs(scores, tss, options_.multioutput), n);
}

at::Tensor r2_score::adjusted(const at::Tensor& plain,
                              std::int64_t samples) const {
  auto freedom = samples - options_.adjusted - 1;
  if (options_.adjusted == 0)
    return plain;
  if (freedom <= 0) {
    warn_metric(name(), c10::str(samples, " samples do not suffice for ",
                                 counted(options_.adjusted, "regressor"),
                                 "; the score is not adjusted"));
    return plain;
  }
  return 1 - (1 - plain) * (samples - 1) / freedom;
}

explained_variance::explained_variance(multioutput how) : multioutput_(how) {}

at::Tensor explained_variance::result() const {
  auto of_errors = error_variation() / samples();
  auto of_targets = target_variation() / samples();
  auto scores = at::where(of_targets == 0, 0, 1 - of_errors / of_targets);
  scores = at::where(of_errors == 0, 1, scores);
  return combined_outputs(scores, of_targets, multioutput_);
}

relative_squared_error::relative_squared_error(bool squared)
  : squared_(squared) {}

std::string relative_squared_error::name() const {
  return squared_ ? "relative_squared_error" : "root_relative_squared_error";
}

at::Tensor relative_squared_error::result() const {
  auto variation = at::where(samples().eq(0), NAN, target_variation());
  auto errors = squared_errors() / variation.clamp_min(epsilon);
  return (squared_ ? errors : errors.sqrt()).mean();
}

pearson_corr_coef::pearson_corr_coef(std::int64_t num_outputs)
  : num_outputs_(num_outputs) {
  if (num_outputs < 1)
    refuse_metric(name(), "needs at least one output, not ", num_outputs);
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
  add_count("samples");
}

std::string pearson_corr_coef::state_key() const {
  return c10::str("pearson/", num_outputs_);
}

pearson_corr_coef::moments
pearson_corr_coef::moments_of(const at::Tensor& preds,
                              const at::Tensor& target) const {
  auto outputs = preds.dim() == 2 ? preds.size(1) : 1;
  if (preds.dim() < 1 || preds.dim() > 2 || outputs != num_outputs_)
    refuse_metric(name(), "takes [samples, ", num_outputs_, "], not ",
                  preds.sizes());
  auto x = widened(name(), preds).reshape({-1, outputs});
  auto y = widened(name(), target).reshape({-1, outputs});
  moments result(pearson_state_count);
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
  result[pearson_samples] = sample_count(x);
  return result;
}

pearson_corr_coef::moments pearson_corr_coef::together(const moments& a,
                                                       const moments& b) const {
  union_of_samples both{a, b, pearson_samples};
  moments result(pearson_state_count);
  result[mean_x] = both.mean(mean_x);
  result[mean_y] = both.mean(mean_y);
  result[squares_x] = both.deviations(squares_x, mean_x, mean_x);
  result[squares_y] = both.deviations(squares_y, mean_y, mean_y);
  result[products] = both.deviations(products, mean_x, mean_y);
  result[min_x] = at::minimum(a[min_x], b[min_x]);
  result[max_x] = at::maximum(a[max_x], b[max_x]);
  result[min_y] = at::minimum(a[min_y], b[min_y]);
  result[max_y] = at::maximum(a[max_y], b[max_y]);
  result[pearson_samples] = both.count;
  return result;
}

at::Tensor pearson_corr_coef::result() const {
  auto freedom = state(pearson_samples) - 1;
  auto reach_x = reach(state(mean_x), state(min_x), state(max_x));
  auto reach_y = reach(state(mean_y), state(min_y), state(max_y));
  auto variance_x = state(squares_x) / freedom / reach_x.square();
  auto variance_y = state(squares_y) / freedom / reach_y.square();
  auto covariance = state(products) / freedom / (reach_x * reach_y);
  auto bound = std::sqrt(epsilon); // As in TorchMetrics.
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

} // namespace troupe
