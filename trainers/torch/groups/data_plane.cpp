#include "troupe/trainers/torch/groups/data_plane.hpp"

#include <any>
#include <string>

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

} // namespace troupe
