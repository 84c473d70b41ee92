#pragma once

#include <cstdint>
#include <string_view>

namespace troupe {

/// What ranks do together through the control plane, reports aside.
enum class meeting_kind : std::uint8_t { barrier, broadcast };

std::string_view to_string(meeting_kind x) noexcept;

} // namespace troupe
