#include "troupe/trainers/torch/data/data_loader.hpp"

#include <any>
#include <string>

#include <c10/util/StringUtil.h>
#include <c10/util/Type.h>

#include "troupe/trainers/rank_link.hpp"
#include "troupe/trainers/torch/groups/data_plane.hpp"
#include "troupe/trainers/torch/throw_invalid_argument.hpp"

namespace troupe::internal {

c10::Device check_loader_options(train_context& context,
                                 const data_loader_options& options,
                                 const char* type) {
  require_at_least(0, options.workers, c10::str(type, "::workers"));
  require_at_least(1, options.prefetch, c10::str(type, "::prefetch"));
  // A loop that was not started by a torch trainer has no device.
  using plane_type = std::shared_ptr<torch_data_plane>;
  auto* plane = std::any_cast<plane_type>(&rank_access{context}.data_plane());
  auto moves = options.move_to_device && plane != nullptr;
  return moves ? (*plane)->device : c10::Device{c10::kCPU};
}

void check_has_samples(std::int64_t samples, const std::type_info& dataset) {
  if (samples == 0)
    throw train_error{
      {ec::invalid_argument,
       c10::str("prepare_data_loader: the dataset has no samples: size() of ",
                c10::demangle(dataset.name()), " is 0")}};
}

loader_activity::loader_activity(train_context& context)
  : shown_(rank_access{context}.link().activity()) {}

} // namespace troupe::internal
