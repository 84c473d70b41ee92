#pragma once

#include <chrono>
#include <vector>

#include <ATen/ATen.h>
#include <c10/util/ParallelGuard.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "troupe/trainers/torch/groups/memory_collectives.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe::internal {

/// How the thread of a `memory_group` touches tensors: without autograd, and
/// without a second team of OpenMP threads beside that of the rank's own
/// thread.
struct plain_tensors {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::ParallelGuard no_threads{true};
};

/// A call that a `memory_group` does not take.
template <class... Args>
[[noreturn]] void refuse_call(ec code, const Args&... what) {
  throw train_error{{code, c10::str("the group ", what...)}};
}

/// Throws unless tensors like *x* can be reduced by *op*.
void check_reduction(const at::Tensor& x, const c10d::ReduceOp& op);

/// The collectives of a group on CPU tensors: which bytes each tensor stands
/// for, of any strides. Every rank calls the same one; all throw like
/// `memory_collectives`.
class tensor_collectives {
public:
  using milliseconds = std::chrono::milliseconds;
  using tensors = std::vector<at::Tensor>;

  explicit tensor_collectives(memory_collectives& collectives)
    : collectives_(collectives) {}

  void barrier(milliseconds timeout);

  /// Reduces *x* of all ranks on all ranks, or on *root* alone if that is not
  /// -1: then the tensors of the others stay as they are.
  void reduce(at::Tensor& x, const c10d::ReduceOp& op, int root,
              milliseconds timeout);

  /// The sum or the average of sparse tensors, on all ranks.
  void reduce_sparse(at::Tensor& x, const c10d::ReduceOp& op,
                     milliseconds timeout);

  /// Copies *x* of *root* to the others.
  void broadcast(at::Tensor& x, int root, milliseconds timeout);

  /// Copies *input* of rank r to `outputs[r]` of all ranks, or of *root* alone
  /// if that is not -1.
  void gather(const at::Tensor& input, tensors& outputs, int root,
              milliseconds timeout);

  /// Copies `inputs[r]` of *root* to *output* of rank r.
  void scatter(const tensors& inputs, at::Tensor& output, int root,
               milliseconds timeout);

  /// Reduces `inputs[r]` of all ranks to *output* of rank r.
  void reduce_scatter(const tensors& inputs, at::Tensor& output,
                      const c10d::ReduceOp& op, milliseconds timeout);

private:
  /// What elements like those of *x* are reduced as: the sum of an average may
  /// be too large for their own type where the average is not.
  at::ScalarType type_of_sums(const at::Tensor& x,
                              const c10d::ReduceOp& op) const;

  memory_collectives& collectives_;
};

} // namespace troupe::internal
