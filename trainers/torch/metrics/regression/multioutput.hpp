#pragma once

#include <string>

#include <ATen/core/Tensor.h>

namespace troupe {

/// What becomes of the scores of several outputs.
enum class multioutput {
  raw_values,        ///< One score each.
  uniform_average,   ///< Their mean.
  variance_weighted, ///< Their mean, weighted by the variances of the targets.
};

/// *scores* of the outputs as *how* says, with *variances* of their targets.
at::Tensor combined_outputs(const at::Tensor& scores,
                            const at::Tensor& variances, multioutput how);

/// Refuses inputs of the metric called *name* that are not [samples] or
/// [samples, outputs], or whose outputs are not those of *sums*, a state of the
/// batches before.
void check_outputs(const std::string& name, const at::Tensor& x,
                   const at::Tensor& sums, bool first);

} // namespace troupe
