#pragma once

#include <string_view>

namespace troupe::page_assets {

/// page.css and page.js, as the build embeds them.
extern const std::string_view style;
extern const std::string_view script;

} // namespace troupe::page_assets
