#include "troupe/runtime/report/straggler_monitor.hpp"

#include <algorithm>
#include <cstdio>

#include "troupe/runtime/rank_names.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

std::string step_text(int rank, double seconds, double others) {
  char text[160];
  std::snprintf(text, sizeof(text),
                "%s is slower than the others: %.3g s for a step, %d times in "
                "a row, the median of the others is %.3g s",
                rank_name(rank).c_str(), seconds,
                straggler_monitor::steps_to_name, others);
  return text;
}

} // namespace

std::optional<std::string>
straggler_monitor::stepped(const std::vector<double>& seconds) {
  auto [least, most] = std::minmax_element(seconds.begin(), seconds.end());
  if (seconds.size() != ranks_.size() || seconds.size() < 2
      || (*most < factor * *least && !counting_))
    return std::nullopt; // No rank is slow: the usual case.
  return count(seconds);
}

std::optional<std::string>
straggler_monitor::count(const std::vector<double>& seconds) {
  sorted_ = seconds;
  std::ranges::sort(sorted_);
  counting_ = false;
  std::string text;
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    auto& rank = ranks_[i];
    // The median of a sorted list without this rank's own entry.
    auto own = static_cast<std::size_t>(
      std::ranges::lower_bound(sorted_, seconds[i]) - sorted_.begin());
    auto middle = (sorted_.size() - 1) / 2;
    auto others = sorted_[middle < own ? middle : middle + 1];
    auto slow =
      seconds[i] >= factor * others && seconds[i] >= others + least_excess;
    rank.slow_steps = slow ? std::max(rank.slow_steps, 0) + 1
                           : std::min(rank.slow_steps, 0) - 1;
    rank.named = rank.named && rank.slow_steps > -steps_to_name;
    if (rank.slow_steps >= steps_to_name && !rank.named) {
      rank.named = true;
      append_item(text, step_text(static_cast<int>(i), seconds[i], others),
                  "; ");
    }
    counting_ |= rank.named || rank.slow_steps > 0;
  }
  return text.empty() ? std::nullopt : std::optional{text};
}

} // namespace troupe::internal
