#include "troupe/runtime/report/collective_kind.hpp"

namespace troupe {

std::string_view to_string(collective_kind x) noexcept {
  return x == collective_kind::barrier ? "barrier" : "broadcast";
}

} // namespace troupe
