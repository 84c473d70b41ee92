#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe {

/// *text* as valid UTF-8 without control characters but tab and newline:
/// broken bytes and control characters become U+FFFD.
std::string clean_text(std::string_view text);

/// What a terminal would show of *text* in the end: without colours and other
/// escape sequences; of a line that was overwritten (`\r`) the last version.
std::string without_terminal_codes(std::string_view text);

/// Longest name, in bytes, that a page shows: of a metric, a text, a setting.
inline constexpr std::size_t max_name_bytes = 200;

/// The first *limit* bytes of *text*, with an ellipsis if that is not all; no
/// character is cut in two.
std::string shortened(std::string_view text, std::size_t limit);

/// *text* in quotes as JSON that may stand inside a `<script>`.
std::string script_text(std::string_view text);

/// A number with up to *digits* significant digits, as people and JavaScript
/// read it; `null` if it is not finite.
std::string number_text(double x, int digits = 6);

/// HTML that is written piece by piece, where whatever came from outside is
/// escaped.
class html_text {
public:
  /// Markup of our own.
  html_text& raw(std::string_view markup) {
    out_ += markup;
    return *this;
  }

  /// Any text, also one that looks like markup or is not UTF-8.
  html_text& text(std::string_view text);

  /// `<tag>text</tag>`.
  html_text& element(std::string_view tag, std::string_view text);

  std::string take() { return std::move(out_); }

private:
  std::string out_;
};

} // namespace troupe
