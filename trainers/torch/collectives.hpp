#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "troupe/trainers/train_context.hpp"

// Collectives for tensors on the CPU or on the rank's device. All ranks make
// the same calls with equal types and shapes; with one rank they do nothing.
// Gradients do not pass through them: a tensor that requires one throws
// `train_error`, as do one that is not dense and the end of the attempt.
namespace troupe {

/// What `all_reduce` makes of the numbers of all ranks.
enum class reduce_op : std::uint8_t {
  sum,
  mean, ///< Of floating-point numbers.
  min,
  max,
};

/// Reduces *x* over all ranks, in place, and returns it; every rank gets the
/// same bits.
at::Tensor all_reduce(train_context& context, at::Tensor x,
                      reduce_op how = reduce_op::sum);

/// *x* of every rank, in order of rank, on the device of *x*. The first
/// dimension may differ between ranks: that costs a second, small collective.
/// Throws on all ranks if other dimensions differ.
std::vector<at::Tensor> all_gather(train_context& context, const at::Tensor& x);

/// Copies *x* of rank *root* to the others, in place, and returns it.
at::Tensor broadcast(train_context& context, at::Tensor x, int root = 0);

namespace internal {

/// The rows of *x* of all ranks in the order of the epoch, the first *samples*
/// of them.
at::Tensor gather_rows(train_context& context, const at::Tensor& x,
                       std::int64_t samples);

/// The first *own* rows of *x* of each rank, in the order of the ranks.
at::Tensor gather_own_rows(train_context& context, const at::Tensor& x,
                           std::int64_t own);

} // namespace internal

/// The rows of *x*, one for each sample of the current batch of *loader*, from
/// all ranks: in the order of the epoch, and without those that `tail::pad` has
/// added, so that metrics count each sample once. Those of a stream are in the
/// order of the ranks. Call it inside the loop over *loader*. Throws for a
/// loader with `tail::no_padding`, whose ranks may have different numbers of
/// batches.
template <class Loader>
at::Tensor gather_for_metrics(train_context& context, const Loader& loader,
                              const at::Tensor& x) {
  if constexpr (requires { loader.own_samples_in_batch(); })
    return internal::gather_own_rows(context, x, loader.own_samples_in_batch());
  else
    return internal::gather_rows(context, x, loader.samples_in_batch());
}

} // namespace troupe
