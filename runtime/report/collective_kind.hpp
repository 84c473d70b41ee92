#pragma once

#include <cstdint>
#include <string_view>

namespace troupe {

/// What ranks do together through the control plane, reports aside.
enum class collective_kind : std::uint8_t { barrier, broadcast };

std::string_view to_string(collective_kind x) noexcept;

} // namespace troupe
