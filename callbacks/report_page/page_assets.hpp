#pragma once

#include <string_view>

namespace troupe::internal::page_assets {

/// page.css and page.js, as the build embeds them.
extern const std::string_view style;
extern const std::string_view script;

/// SHA-256 of the script in base64, as a page's policy names it.
extern const std::string_view script_sha256;

} // namespace troupe::internal::page_assets
