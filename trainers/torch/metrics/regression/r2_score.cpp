#include "troupe/trainers/torch/metrics/regression/r2_score.hpp"

#include <ATen/ATen.h>

namespace troupe {

namespace {

/// Sums of squares up to this are zero.
constexpr double no_variance = 1e-4;

} // namespace

r2_score::r2_score(options x) : options_(x) {
  if (x.adjusted < 0)
    refuse_metric("r2_score", "cannot be adjusted for "
                                + std::to_string(x.adjusted) + " regressors");
}

at::Tensor r2_score::result() const {
  auto n = samples().item<std::int64_t>();
  if (n < 2)
    refuse_metric(name(),
                  "needs at least two samples, has " + std::to_string(n));
  auto& rss = squared_errors();
  auto& tss = target_variation();
  auto scores = at::where(tss.abs() <= no_variance, 0, 1 - rss / tss);
  scores = at::where(rss.abs() <= no_variance, 1, scores);
  return adjusted(combined_outputs(scores, tss, options_.multioutput), n);
}

at::Tensor r2_score::adjusted(const at::Tensor& plain,
                              std::int64_t samples) const {
  auto left = samples - options_.adjusted - 1;
  if (options_.adjusted == 0)
    return plain;
  if (left <= 0) {
    warn_metric(name(), std::to_string(samples) + " samples do not suffice for "
                          + std::to_string(options_.adjusted)
                          + " regressors; the score is not adjusted");
    return plain;
  }
  return 1 - (1 - plain) * (samples - 1) / left;
}

} // namespace troupe
