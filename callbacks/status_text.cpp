#include "troupe/callbacks/status_text.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "troupe/callbacks/elapsed_text.hpp"
#include "troupe/callbacks/terminal_text.hpp"

namespace troupe {

namespace {

/// Columns of a metric's name, and of its value.
constexpr int widest = 60;

std::string rate_text(double per_second) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(),
                per_second < 100 ? "%.1f/s" : "%.0f/s", per_second);
  return text.data();
}

std::string with_metrics(std::string text, const run_status& x,
                         const char* separator, int columns) {
  if (x.last_metrics.empty())
    return text;
  text += separator;
  return text + metrics_text(x.last_metrics, columns - display_width(text));
}

} // namespace

std::string metrics_text(const metrics& x, int columns) {
  std::string text;
  auto left = x.size();
  for (auto& [name, value] : x) {
    auto next = (text.empty() ? "" : " ") + fit_to_line(name, widest) + '='
                + fit_to_line(to_string(value), widest);
    auto more = left > 1 ? " + " + std::to_string(left - 1) + " more" : "";
    // The first one is shown in any case, or the line would tell nothing.
    if (!text.empty() && display_width(text + next + more) > columns)
      return text + " + " + std::to_string(left) + " more";
    text += next;
    --left;
  }
  return text;
}

std::string state_text(const run_status& x) {
  std::string text{to_string(x.state)};
  std::ranges::replace(text, '_', ' ');
  text += ", attempt " + std::to_string(x.attempt);
  if (x.world_size > 0)
    text += ", " + std::to_string(x.world_size)
            + (x.world_size == 1 ? " rank" : " ranks");
  return text;
}

std::string report_text(const run_status& x, int columns) {
  std::string text;
  if (x.last_report)
    text = "report " + std::to_string(*x.last_report) + ", ";
  text += rate_text(x.reports_per_second) + ", " + elapsed_text(x.elapsed_s);
  return with_metrics(std::move(text), x, ": ", columns);
}

std::string live_text(const run_status& x, double elapsed_s, int columns) {
  auto text = state_text(x) + " | " + std::to_string(x.reports)
              + (x.reports == 1 ? " report" : " reports");
  if (x.reports > 0)
    text += ", " + rate_text(x.reports_per_second);
  text += " | " + elapsed_text(elapsed_s);
  if (x.callback_queue > 0)
    text += " | " + std::to_string(x.callback_queue) + " wait for callbacks";
  return with_metrics(std::move(text), x, " | ", columns);
}

} // namespace troupe
