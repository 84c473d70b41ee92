#include "troupe/trainers/torch/metrics/aggregation.hpp"

#include <limits>

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

namespace troupe {

using namespace internal;

namespace {

/// The minimum of no elements is infinity, the maximum -infinity.
double extremum_of_nothing(metric_reduction reduction) {
  constexpr auto infinity = std::numeric_limits<double>::infinity();
  return reduction == metric_reduction::min ? infinity : -infinity;
}

at::Tensor no_elements() {
  return at::empty({0}, at::kDouble);
}

at::Tensor last_elements(const at::Tensor& x, std::int64_t n) {
  return x.size(0) <= n ? x : x.narrow(0, x.size(0) - n, n);
}

} // namespace

/// The NaN of one update. Does not wait for the device, except with
/// `on_nan::error`.
struct aggregator::nan_filter {
  /// *x* with *neutral* in place of skipped NaN, and with *replacement* in
  /// place of those that the strategy replaces.
  at::Tensor fill(const at::Tensor& x, double neutral,
                  double replacement) const {
    return found.defined() ? x.masked_fill(found, skips ? neutral : replacement)
                           : x;
  }

  /// *x*, the values themselves.
  at::Tensor fill(const at::Tensor& x, double neutral) const {
    return fill(x, neutral, number);
  }

  at::Tensor found;  // Where NaN is; undefined if there is nothing to do.
  bool skips = true; // Or replaces by...
  double number = 0;
};

aggregator::aggregator(nan_strategy strategy) : strategy_(strategy) {
  if (warns())
    nans_ = add_count("nans");
}

aggregator::nan_filter aggregator::filter(const at::Tensor& values,
                                          const at::Tensor& weights) {
  if (strategy_ == nan_strategy{on_nan::disable})
    return {};
  auto found = at::isnan(values);
  if (weights.defined())
    found = found.logical_or(at::isnan(weights));
  if (auto number = std::get_if<double>(&strategy_))
    return {found, false, *number};
  if (strategy_ == nan_strategy{on_nan::error} && found.any().item<bool>())
    refuse_metric(name(), "an update has ", found.sum().item<std::int64_t>(),
                  " NaN");
  if (warns())
    state(nans_) = state(nans_) + found.sum();
  return {found};
}

at::Tensor aggregator::result() const {
  if (warns())
    if (auto nans = state(nans_).item<std::int64_t>(); nans > 0)
      warn_metric(name(), c10::str(nans, " NaN left out"));
  return aggregate();
}

sum_metric::sum_metric(nan_strategy strategy)
  : aggregator(strategy), sum_(add_sum("sum")) {}

void sum_metric::add(const at::Tensor& values) {
  auto x = widened(name(), values);
  state(sum_) = state(sum_) + filter(x).fill(x, 0).sum();
}

at::Tensor sum_metric::aggregate() const {
  return state(sum_);
}

mean_metric::mean_metric(nan_strategy strategy)
  : aggregator(strategy), sum_(add_sum("sum")), weight_(add_sum("weight")) {}

void mean_metric::update(const at::Tensor& values, const at::Tensor& weights) {
  accumulate(values.device(), [&] {
    add_weighted(widened(name(), values),
                 widened(name(), weights).to(values.device()));
  });
}

void mean_metric::update(double value, double weight) {
  update(as_tensor(value), as_tensor(weight));
}

at::Tensor mean_metric::forward(const at::Tensor& values,
                                const at::Tensor& weights) {
  return batch_value([&] { update(values, weights); });
}

void mean_metric::add(const at::Tensor& values) {
  auto x = widened(name(), values);
  add_weighted(x, at::ones_like(x));
}

void mean_metric::add_weighted(const at::Tensor& values,
                               const at::Tensor& weights) {
  if (!at::is_expandable_to(weights.sizes(), values.sizes()))
    refuse_metric(name(), "weights of shape ", weights.sizes(),
                  " do not fit values of shape ", values.sizes());
  auto w = weights.expand_as(values);
  auto nans = filter(values, w);
  w = nans.fill(w, 0, 1);
  state(sum_) = state(sum_) + (nans.fill(values, 0) * w).sum();
  state(weight_) = state(weight_) + w.sum();
}

at::Tensor mean_metric::aggregate() const {
  return state(sum_) / state(weight_);
}

extremum_metric::extremum_metric(metric_reduction reduction,
                                 nan_strategy strategy)
  : aggregator(strategy), reduction_(reduction),
    extremum_(
      add_state(extremum_metric::name(), reduction,
                at::full({}, extremum_of_nothing(reduction), at::kDouble))) {}

std::string extremum_metric::name() const {
  return reduction_ == metric_reduction::min ? "min" : "max";
}

void extremum_metric::add(const at::Tensor& values) {
  auto x = widened(name(), values);
  if (x.numel() == 0)
    return;
  x = filter(x).fill(x, extremum_of_nothing(reduction_));
  auto& so_far = state(extremum_);
  so_far = reduction_ == metric_reduction::min ? at::minimum(so_far, x.min())
                                               : at::maximum(so_far, x.max());
}

at::Tensor extremum_metric::aggregate() const {
  return state(extremum_);
}

cat_metric::cat_metric(nan_strategy strategy)
  : aggregator(strategy),
    values_(add_state("values", metric_reduction::cat, no_elements())) {}

void cat_metric::add(const at::Tensor& values) {
  auto x = widened(name(), values).flatten();
  auto nans = filter(x);
  append(values_, nans.found.defined() && nans.skips
                    ? x.masked_select(nans.found.logical_not())
                    : nans.fill(x, 0));
}

at::Tensor cat_metric::aggregate() const {
  return joined(values_);
}

running_mean::running_mean(std::int64_t window, nan_strategy strategy)
  : aggregator(strategy), window_(window),
    sums_(add_state("sums", metric_reduction::cat, no_elements())),
    counts_(add_state("counts", metric_reduction::cat, no_elements())) {
  if (window < 1)
    refuse_metric(name(), "needs a window of at least one update, not ",
                  window);
}

void running_mean::add(const at::Tensor& values) {
  auto x = widened(name(), values);
  auto nans = filter(x);
  auto sum = nans.fill(x, 0).sum().view({1});
  auto count = nans.fill(at::ones_like(x), 0, 1).sum().view({1});
  replace(sums_, last_elements(at::cat({joined(sums_), sum}), window_));
  replace(counts_, last_elements(at::cat({joined(counts_), count}), window_));
}

at::Tensor running_mean::aggregate() const {
  return joined(sums_).sum() / joined(counts_).sum();
}

void running_mean::extend(metric_states& into,
                          const metric_states& batch) const {
  combine_by_reduction(into, batch);
  for (auto i : {sums_, counts_})
    into.items[i].assign(last_elements(into.items[i].whole(), window_));
}

} // namespace troupe
