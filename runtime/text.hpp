#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe {

/// Longest text of an exception that is sent or stored.
inline constexpr std::size_t max_reason_size = std::size_t{64} * 1024;

/// The first *size* bytes of *text*, or fewer: cut between two UTF-8
/// characters.
std::string_view cut_text(std::string_view text, std::size_t size) noexcept;

/// *text*, cut to `max_reason_size`; what was cut says how long it was.
std::string cut_reason(std::string text);

/// Appends two lowercase hexadecimal digits for each byte of *bytes*.
void append_hex(std::string& out, std::string_view bytes);

} // namespace troupe
