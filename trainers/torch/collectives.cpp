#include "troupe/trainers/torch/collectives.hpp"

#include "troupe/trainers/torch/data_plane.hpp"

namespace troupe {

at::Tensor all_reduce_sum(train_context& context, at::Tensor x) {
  if (auto group = data_plane(context)->group) {
    std::vector<at::Tensor> tensors{x};
    group->allreduce(tensors)->wait();
  }
  return x;
}

} // namespace troupe
