#pragma once

#include <string>
#include <string_view>

namespace troupe::internal {

/// The frame of a page that `page.js` draws. Its policy forbids every request
/// to others, and every script but its own.
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
