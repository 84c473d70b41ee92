#pragma once

#include <string>
#include <string_view>

namespace troupe::internal {

/// The files of `page/`, as the build embeds them.
namespace page_assets {
extern const std::string_view style;
extern const std::string_view script;

/// SHA-256 of the script in base64, as a page's policy names it.
extern const std::string_view script_sha256;
} // namespace page_assets

/// The frame of a page that the script of `page/` draws. Its policy forbids
/// every request to others, and every script but its own.
struct html_page {
  std::string title;   ///< As text.
  std::string heading; ///< As text; stays if the script does not run.
  std::string summary; ///< A line below the heading, as text.
  std::string data;    ///< One JSON document.
  /// Whether the script may ask the page's own server for more.
  bool is_served = false;
};

std::string to_html(const html_page& x);

} // namespace troupe::internal
