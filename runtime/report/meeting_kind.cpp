#include "troupe/runtime/report/meeting_kind.hpp"

namespace troupe {

std::string_view to_string(meeting_kind x) noexcept {
  return x == meeting_kind::barrier ? "barrier" : "broadcast";
}

} // namespace troupe
