#pragma once

#include <string>
#include <string_view>

#include "troupe/runtime/error.hpp"

namespace troupe {

/// Closes a JSON object that was begun as *open_object* ("{…", at least one
/// field, no "}") with its checksum as last field and a line end:
/// `,"sum":"<16 hex digits>"}\n`. The sum is that of all bytes before it, so a
/// flipped byte anywhere is noticed.
void append_sum(std::string& open_object);

/// Length of what `append_sum` adds.
inline constexpr std::size_t sum_size = 8 + 16 + 3;

/// Whether *text* ends with the right checksum.
bool has_valid_sum(std::string_view text) noexcept;

/// `ec::corrupt` naming *what* if the checksum is missing or wrong.
expected<void> verify_sum(std::string_view text, const std::string& what);

} // namespace troupe
