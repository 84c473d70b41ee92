#include "troupe/callbacks/status_text.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "troupe/callbacks/elapsed_text.hpp"

namespace troupe {

namespace {

std::string rate_text(double per_second) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(),
                per_second < 100 ? "%.1f/s" : "%.0f/s", per_second);
  return text.data();
}

std::string with_metrics(std::string text, const run_status& x,
                         const char* separator) {
  return x.last_metrics.empty() ? text
                                : text + separator + to_string(x.last_metrics);
}

} // namespace

std::string state_text(const run_status& x) {
  std::string text{to_string(x.state)};
  std::ranges::replace(text, '_', ' ');
  text += ", attempt " + std::to_string(x.attempt);
  if (x.world_size > 0)
    text += ", " + std::to_string(x.world_size)
            + (x.world_size == 1 ? " rank" : " ranks");
  return text;
}

std::string report_text(const run_status& x) {
  std::string text;
  if (x.last_report)
    text = "report " + std::to_string(*x.last_report) + ", ";
  text += rate_text(x.reports_per_second) + ", " + elapsed_text(x.elapsed_s);
  return with_metrics(std::move(text), x, ": ");
}

std::string live_text(const run_status& x, double elapsed_s) {
  auto text = state_text(x) + " | " + std::to_string(x.reports)
              + (x.reports == 1 ? " report" : " reports");
  if (x.reports > 0)
    text += ", " + rate_text(x.reports_per_second);
  text += " | " + elapsed_text(elapsed_s);
  if (x.callback_queue > 0)
    text += " | " + std::to_string(x.callback_queue) + " wait for callbacks";
  return with_metrics(std::move(text), x, " | ");
}

} // namespace troupe
