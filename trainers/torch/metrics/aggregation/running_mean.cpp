#include "troupe/trainers/torch/metrics/aggregation/running_mean.hpp"

#include <ATen/ATen.h>

#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

namespace {

at::Tensor last(const at::Tensor& x, std::int64_t n) {
  return x.size(0) <= n ? x : x.narrow(0, x.size(0) - n, n);
}

} // namespace

running_mean::running_mean(std::int64_t window, nan_strategy strategy)
  : aggregator(strategy), window_(window),
    sums_(
      add_state("sums", metric_reduction::cat, at::empty({0}, at::kDouble))),
    counts_(
      add_state("counts", metric_reduction::cat, at::empty({0}, at::kDouble))) {
  if (window < 1)
    refuse_metric("running_mean", "needs a window of at least one update, not "
                                    + std::to_string(window));
}

void running_mean::add(const at::Tensor& values) {
  auto x = widened(name(), values);
  auto nans = filter(x);
  auto sum = nans.fill(x, 0).sum().view({1});
  auto count = nans.fill(at::ones_like(x), 0, 1).sum().view({1});
  replace(sums_, last(at::cat({joined(sums_), sum}), window_));
  replace(counts_, last(at::cat({joined(counts_), count}), window_));
}

at::Tensor running_mean::result() const {
  warn_of_nans();
  return joined(sums_).sum() / joined(counts_).sum();
}

void running_mean::extend(metric_states& into,
                          const metric_states& batch) const {
  combine_by_reduction(into, batch);
  for (auto i : {sums_, counts_})
    into.items[i].assign(last(into.items[i].whole(), window_));
}

} // namespace troupe
