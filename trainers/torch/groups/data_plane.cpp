#include "troupe/trainers/torch/groups/data_plane.hpp"

#include <any>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <c10/util/StringUtil.h>

namespace troupe {

using namespace internal;

std::shared_ptr<torch_data_plane> data_plane(train_context& context) {
  auto plane = std::any_cast<std::shared_ptr<torch_data_plane>>(
    &rank_access{context}.data_plane());
  if (plane)
    return *plane;
  throw train_error{
    {ec::invalid_argument,
     c10::str(
       "rank ", context.rank(),
       ": this loop was not started by a torch_trainer, so it has no group "
       "and no device")}};
}

at::Device device(train_context& context) {
  return data_plane(context)->device;
}

at::Tensor all_reduce_sum(train_context& context, at::Tensor x) {
  if (x.requires_grad() && at::GradMode::is_enabled())
    throw train_error{
      {ec::invalid_argument,
       "all_reduce_sum was given a tensor that requires a gradient, but "
       "gradients do not pass through it: give it x.detach().clone()"}};
  auto plane = data_plane(context);
  if (!plane->group)
    return x;
  // A group of GPUs carries GPU tensors only, and c10d's groups read the memory
  // of a view as if it were its elements.
  std::vector<at::Tensor> there{
    x.to(plane->device).resolve_conj().resolve_neg().contiguous()};
  plane->group->allreduce(there)->wait();
  if (!there[0].is_same(x))
    x.copy_(there[0]);
  return x;
}

} // namespace troupe
