#include "troupe/callbacks/report_page/page_parts.hpp"

#include <chrono>
#include <ctime>

namespace troupe {

namespace {

std::string utc_text(journal_digest::time_point x, const char* format) {
  auto seconds = std::chrono::system_clock::to_time_t(x);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[64];
  std::strftime(text, sizeof(text), format, &utc);
  return text;
}

} // namespace

html_text& append_time(html_text& out, journal_digest::time_point x) {
  return out.raw("<time datetime=\"")
    .raw(utc_text(x, "%Y-%m-%dT%H:%M:%SZ"))
    .raw("\">")
    .raw(utc_text(x, "%Y-%m-%d %H:%M:%S"))
    .raw("</time>");
}

std::string count_text(std::size_t count, const char* what) {
  return std::to_string(count) + ' ' + what + (count == 1 ? "" : "s");
}

std::string seconds_text(double x) {
  if (x < 1e-3)
    return number_text(x * 1e6, 3) + " µs";
  return x < 1 ? number_text(x * 1e3, 3) + " ms" : number_text(x, 3) + " s";
}

void begin_section(html_text& out, const char* id, const char* title) {
  out.raw("<section id=\"").raw(id).raw("\" aria-labelledby=\"").raw(id);
  out.raw("-title\">\n<h2 id=\"").raw(id).raw("-title\">").text(title);
  out.raw("</h2>\n");
}

void end_section(html_text& out) {
  out.raw("</section>\n");
}

void begin_table(html_text& out, const char* label,
                 const std::vector<std::string>& columns) {
  out.raw("<div class=\"table\" role=\"region\" tabindex=\"0\" aria-label=\"")
    .text(label)
    .raw("\"><table>\n<thead><tr>");
  for (auto& x : columns)
    out.raw("<th scope=\"col\">")
      .text(shortened(x, max_name_bytes))
      .raw("</th>");
  out.raw("</tr></thead>\n<tbody>\n");
}

void end_table(html_text& out) {
  out.raw("</tbody></table></div>\n");
}

html_text& row_head(html_text& out, std::string_view name) {
  return out.raw("<tr><th scope=\"row\">")
    .text(shortened(name, max_name_bytes))
    .raw("</th>");
}

html_text& number_cell(html_text& out, std::string_view text) {
  return out.raw("<td class=\"number\">").text(text).raw("</td>");
}

void name_values_table(
  html_text& out, const char* label,
  const std::vector<std::pair<std::string, std::string>>& all) {
  out.raw("<div class=\"table\" role=\"region\" tabindex=\"0\" aria-label=\"")
    .text(label)
    .raw("\"><table class=\"pairs\"><tbody>\n");
  for (auto& [name, value] : all)
    row_head(out, name).element("td", value).raw("</tr>\n");
  end_table(out);
}

} // namespace troupe
