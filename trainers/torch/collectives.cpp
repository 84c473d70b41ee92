#include "troupe/trainers/torch/collectives.hpp"

#include <ATen/core/grad_mode.h>

#include "troupe/trainers/torch/data_plane.hpp"
#include "troupe/trainers/torch/refuse.hpp"

namespace troupe {

at::Tensor all_reduce_sum(train_context& context, at::Tensor x) {
  if (x.requires_grad() && at::GradMode::is_enabled())
    refuse("all_reduce_sum was given a tensor that requires a gradient, but "
           "gradients do not pass through it: give it x.detach().clone()");
  auto plane = data_plane(context);
  if (!plane->group)
    return x;
  // A group of GPUs carries their tensors alone, and those of c10d take the
  // memory of a view for its elements.
  std::vector<at::Tensor> there{
    x.to(plane->device).resolve_conj().resolve_neg().contiguous()};
  plane->group->allreduce(there)->wait();
  if (!there[0].is_same(x))
    x.copy_(there[0]);
  return x;
}

} // namespace troupe
