#include "troupe/trainers/torch/collectives.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "troupe/runtime/counted.hpp"
#include "troupe/trainers/torch/groups/data_plane.hpp"
#include "troupe/trainers/torch/throw_invalid_argument.hpp"

namespace troupe {

using namespace internal;

namespace {

void check_tensor(const char* call, const at::Tensor& x) {
  if (x.layout() != at::kStrided)
    throw_invalid_argument(
      call, " was given a tensor that is not dense: give it x.to_dense()");
  if (x.requires_grad() && at::GradMode::is_enabled())
    throw_invalid_argument(
      call, " was given a tensor that requires a gradient, but gradients do "
            "not pass through it: give it x.detach().clone()");
}

/// The elements of *x* as the group of *plane* wants them: on its device, and
/// in order.
at::Tensor prepared(const torch_data_plane& plane, const at::Tensor& x) {
  return x.detach().to(plane.device).resolve_conj().resolve_neg().contiguous();
}

/// Takes *result* for *x* if it is another tensor.
at::Tensor put_into(at::Tensor x, const at::Tensor& result) {
  at::NoGradGuard no_grad;
  if (result.data_ptr() != x.data_ptr() || !x.is_contiguous())
    x.copy_(result);
  return x;
}

std::vector<at::Tensor> gather_equal(const torch_data_plane& plane, int ranks,
                                     at::Tensor x) {
  std::vector<std::vector<at::Tensor>> outputs(1);
  for (int rank = 0; rank < ranks; ++rank)
    outputs.front().push_back(at::empty_like(x));
  std::vector<at::Tensor> inputs{std::move(x)};
  plane.group->allgather(outputs, inputs)->wait();
  return std::move(outputs.front());
}

/// Of the shape of one row of *x*.
std::int64_t hash_of_row(const at::Tensor& x) {
  auto result = static_cast<std::uint64_t>(x.dim());
  for (auto n : x.sizes().slice(1))
    result = result * 1000003 + static_cast<std::uint64_t>(n);
  return static_cast<std::int64_t>(result);
}

} // namespace

at::Tensor all_reduce(train_context& context, at::Tensor x, reduce_op how) {
  check_tensor("all_reduce", x);
  if (how == reduce_op::mean && !x.is_floating_point() && !x.is_complex())
    throw_invalid_argument("all_reduce was asked for the mean of ",
                           toString(x.scalar_type()),
                           " elements: convert them to floating point");
  auto plane = data_plane(context);
  if (!plane->group)
    return x;
  c10d::AllreduceOptions options;
  options.reduceOp = how == reduce_op::min   ? c10d::ReduceOp::MIN
                     : how == reduce_op::max ? c10d::ReduceOp::MAX
                                             : c10d::ReduceOp::SUM;
  std::vector<at::Tensor> there{prepared(*plane, x)};
  // In half precision the sum may be infinite where the mean is not.
  if (how == reduce_op::mean && at::isReducedFloatingType(x.scalar_type()))
    there[0] = there[0].to(at::kFloat);
  plane->group->allreduce(there, options)->wait();
  if (how == reduce_op::mean)
    there[0].div_(context.world_size());
  return put_into(std::move(x), there[0]);
}

std::vector<at::Tensor> all_gather(train_context& context,
                                   const at::Tensor& x) {
  check_tensor("all_gather", x);
  auto plane = data_plane(context);
  if (!plane->group)
    return {x};
  at::NoGradGuard no_grad;
  auto ranks = context.world_size();
  auto mine = prepared(*plane, x);
  if (x.dim() == 0) {
    auto result = gather_equal(*plane, ranks, std::move(mine));
    for (auto& one : result)
      one = one.to(x.device());
    return result;
  }
  auto row = hash_of_row(x);
  auto shapes = at::stack(gather_equal(
    *plane, ranks, at::tensor(std::vector{x.size(0), row}).to(plane->device)));
  shapes = shapes.to(at::kCPU);
  for (int rank = 0; rank < ranks; ++rank)
    if (shapes[rank][1].item<std::int64_t>() != row)
      throw_invalid_argument(
        "rank ", context.rank(), ": all_gather was given rows of shape ",
        x.sizes().slice(1), ", but rank ", rank, " has rows of another shape");
  auto lengths = shapes.select(1, 0);
  auto most = lengths.max().item<std::int64_t>();
  if (most > x.size(0)) {
    auto sizes = x.sizes().vec();
    sizes[0] = most - x.size(0);
    mine = at::cat({mine, at::zeros(sizes, mine.options())});
  }
  auto result = gather_equal(*plane, ranks, std::move(mine));
  for (int rank = 0; rank < ranks; ++rank) {
    auto& one = result[static_cast<std::size_t>(rank)];
    one = one.narrow(0, 0, lengths[rank].item<std::int64_t>()).to(x.device());
  }
  return result;
}

at::Tensor broadcast(train_context& context, at::Tensor x, int root) {
  check_tensor("broadcast", x);
  if (root < 0 || root >= context.world_size())
    throw_invalid_argument("broadcast was given rank ", root,
                           " as root, but the ranks are 0 to ",
                           context.world_size() - 1);
  auto plane = data_plane(context);
  if (!plane->group)
    return x;
  c10d::BroadcastOptions options;
  options.rootRank = root;
  std::vector<at::Tensor> there{prepared(*plane, x)};
  plane->group->broadcast(there, options)->wait();
  return put_into(std::move(x), there[0]);
}

namespace {

void check_rows_to_gather(const at::Tensor& x, std::int64_t samples) {
  check_tensor("gather_for_metrics", x);
  if (x.dim() == 0)
    throw_invalid_argument(
      "gather_for_metrics was given a tensor without rows");
  if (samples < 0)
    throw_invalid_argument(
      "gather_for_metrics was called outside of the loop over its loader, or "
      "that has tail::no_padding or a batch_order, with which ranks may have "
      "different numbers of batches or samples");
}

} // namespace

at::Tensor internal::gather_rows(train_context& context, const at::Tensor& x,
                                 std::int64_t samples) {
  check_rows_to_gather(x, samples);
  auto plane = data_plane(context);
  auto all = x;
  if (plane->group) {
    auto parts =
      gather_equal(*plane, context.world_size(), prepared(*plane, x));
    // Rank r has every world-size-th sample from the r-th on.
    all = at::stack(parts, 1).flatten(0, 1).to(x.device());
  }
  if (all.size(0) < samples)
    throw_invalid_argument(
      "gather_for_metrics got ", counted(all.size(0), "row"),
      " from all ranks, but their batches have ", counted(samples, "sample"));
  return all.narrow(0, 0, samples);
}

at::Tensor internal::gather_own_rows(train_context& context,
                                     const at::Tensor& x, std::int64_t own) {
  check_rows_to_gather(x, own);
  if (x.size(0) < own)
    throw_invalid_argument("gather_for_metrics got ", counted(x.size(0), "row"),
                           ", but the batch has ", counted(own, "sample"));
  return at::cat(all_gather(context, x.narrow(0, 0, own)));
}

} // namespace troupe
