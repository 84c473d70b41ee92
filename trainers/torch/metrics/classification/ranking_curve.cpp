#include "troupe/trainers/torch/metrics/classification/ranking_curve.hpp"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

namespace troupe {

ranking_curve exact_curve(const at::Tensor& scores,
                          const at::Tensor& positive) {
  auto [sorted, order] = scores.sort(/*stable=*/true, 0, /*descending=*/true);
  auto hits = positive.index_select(0, order).to(at::kDouble);
  auto misses = at::ones_like(hits) - hits;
  // The last of equal scores is where the curve has a point; one more, at the
  // front, has nothing above it.
  auto n = scores.size(0);
  auto last = at::ones({n}, scores.options().dtype(at::kBool));
  if (n > 1)
    last.slice(0, 0, n - 1)
      .copy_(sorted.slice(0, 1).ne(sorted.slice(0, 0, n - 1)));
  auto points = [&](const at::Tensor& x) {
    return at::cat({at::zeros({1}, x.options()), x.masked_select(last)});
  };
  return {points(hits.cumsum(0)), points(misses.cumsum(0)), hits.sum(),
          misses.sum()};
}

ranking_curve binned_curve(const at::Tensor& positives_by_bin,
                           const at::Tensor& negatives_by_bin) {
  // An element in bin 0 reaches no threshold.
  auto points = [](const at::Tensor& by_bin) {
    return by_bin.slice(0, 1).flip(0).cumsum(0).to(at::kDouble);
  };
  return {points(positives_by_bin), points(negatives_by_bin),
          positives_by_bin.sum().to(at::kDouble),
          negatives_by_bin.sum().to(at::kDouble)};
}

} // namespace troupe
