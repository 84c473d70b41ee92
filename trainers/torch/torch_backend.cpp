#include "troupe/trainers/torch/torch_backend.hpp"

#include "troupe/trainers/torch/groups/make_group.hpp"

namespace troupe {

std::shared_ptr<void> torch_backend::start(train_context& context) const {
  context.data_plane() = make_group(context, config);
  return {&context, [](train_context* x) { x->data_plane().reset(); }};
}

} // namespace troupe
