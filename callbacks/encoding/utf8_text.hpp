#pragma once

#include <string>
#include <string_view>

namespace troupe {

/// Appends *text*; each sequence of bytes that is no UTF-8 becomes U+FFFD, as
/// Unicode's "substitution of maximal subparts" has it.
void append_utf8(std::string& out, std::string_view text);

/// *text* as `append_utf8` writes it.
std::string utf8_text(std::string_view text);

} // namespace troupe
