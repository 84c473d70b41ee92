#include "troupe/trainers/torch/data/prepare_data_loader.hpp"

#include <any>
#include <string>

#include "troupe/trainers/rank_link.hpp"
#include "troupe/trainers/torch/data_plane.hpp"

namespace troupe {

c10::Device check_loader_options(train_context& context,
                                 const data_loader_options& options) {
  auto refuse = [](const char* what, int value, int least) {
    throw train_error{
      {ec::invalid_argument, std::string{"data_loader_options."} + what + " is "
                               + std::to_string(value) + ", below "
                               + std::to_string(least)}};
  };
  if (options.workers < 0)
    refuse("workers", options.workers, 0);
  if (options.prefetch < 1)
    refuse("prefetch", options.prefetch, 1);
  // A loop that no torch trainer started has no device of its own.
  using plane_type = std::shared_ptr<torch_data_plane>;
  auto* plane = std::any_cast<plane_type>(&context.data_plane());
  const auto moves = options.move_to_device && plane != nullptr;
  return moves ? (*plane)->device : c10::Device{c10::kCPU};
}

std::shared_ptr<rank_activity> loader_activity(train_context& context) {
  return context.link().activity();
}

} // namespace troupe
