#pragma once

#include <string>
#include <string_view>

namespace troupe {

/// *text* as part of a URL: all but letters, digits and `-._~` as `%XX`; the
/// characters of *kept* stay, too.
std::string percent_encoded(std::string_view text, std::string_view kept = {});

} // namespace troupe
