#include "troupe/trainers/torch/metrics/regression/multioutput.hpp"

#include <ATen/ATen.h>

#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

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

void check_outputs(const std::string& name, const at::Tensor& x,
                   const at::Tensor& sums, bool first) {
  if (x.dim() < 1 || x.dim() > 2)
    refuse_metric(name,
                  "takes [samples] or [samples, outputs], not " + shape_of(x));
  if (!first && x.numel() / x.size(0) != sums.numel())
    refuse_metric(name, "had " + std::to_string(sums.numel())
                          + " outputs so far, now inputs of shape "
                          + shape_of(x));
}

} // namespace troupe
