#include "troupe/trainers/torch/torch_config.hpp"

namespace troupe {

std::string_view to_string(backend x) noexcept {
  switch (x) {
    case backend::automatic:
      return "automatic";
    case backend::local:
      return "local";
    case backend::gloo:
      return "gloo";
    case backend::nccl:
      return "nccl";
  }
  return "unknown";
}

} // namespace troupe
