#include "troupe/runtime/error.hpp"

namespace troupe {

std::string_view to_string(ec code) noexcept {
  switch (code) {
    case ec::none:
      return "none";
    case ec::invalid_config:
      return "invalid config";
    case ec::invalid_argument:
      return "invalid argument";
    case ec::not_initialized:
      return "not initialized";
    case ec::conflict:
      return "conflict";
    case ec::storage:
      return "storage";
    case ec::corrupt:
      return "corrupt";
    case ec::spawn:
      return "spawn";
    case ec::rank_failed:
      return "rank failed";
    case ec::callback_failed:
      return "callback failed";
    case ec::protocol:
      return "protocol";
    case ec::timeout:
      return "timeout";
    case ec::stopped:
      return "stopped";
    case ec::unsupported:
      return "unsupported";
  }
  return "unknown";
}

} // namespace troupe
