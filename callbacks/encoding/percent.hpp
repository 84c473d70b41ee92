#pragma once

#include <string>
#include <string_view>

namespace troupe::internal {

/// *text* for use in a URL: all characters but letters, digits, `-._~` and
/// those of *kept* become `%XX`.
std::string percent_encoded(std::string_view text, std::string_view kept = {});

/// What a `+` stands for: in the query of a URL, as forms send it, for a blank.
enum class plus_sign { itself, blank };

/// *text* with each `%XX` replaced by its byte. A `%` without two hexadecimal
/// digits after it stays.
std::string percent_decoded(std::string_view text,
                            plus_sign plus = plus_sign::itself);

} // namespace troupe::internal
