#include "troupe/callbacks/status_text.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "troupe/callbacks/console.hpp"
#include "troupe/callbacks/console_progress.hpp"
#include "troupe/runtime/counted.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/store/result.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// Most columns of a metric's name and of its value.
constexpr int widest = 60;

/// Below it, a rate of one digit says nothing.
constexpr double lowest_rate = 0.1;

std::string rate_text(double per_second) {
  if (per_second > 0 && per_second < lowest_rate)
    return "one in " + elapsed_text(1 / per_second);
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(),
                per_second < 100 ? "%.1f/s" : "%.0f/s", per_second);
  return text.data();
}

/// Too short for a rate.
constexpr double shortest_time_s = 1;

/// The metrics that fit into *columns*, at least one, and the number of others:
/// "acc=0.9 loss=0.3 + 996 more".
std::string metrics_text(const metrics& x, int columns) {
  std::string text;
  auto left = x.size();
  for (auto& [name, value] : x) {
    auto next = (text.empty() ? "" : " ") + fit_to_line(name, widest) + '='
                + fit_to_line(to_string(value), widest);
    auto more = left > 1 ? concat(" + ", left - 1, " more") : "";
    // The first metric is always shown, or the line would show none.
    if (!text.empty() && display_width(text + next + more) > columns)
      return concat(text, " + ", left, " more");
    text += next;
    --left;
  }
  return text;
}

std::string with_metrics(std::string text, const run_status& x,
                         const char* separator, int columns) {
  if (x.last_metrics.empty())
    return text;
  text += separator;
  return text + metrics_text(x.last_metrics, columns - display_width(text));
}

/// *text* with later lines indented like the first, and '?' for other control
/// characters, which a terminal would interpret.
std::string hanging(const std::string& text, std::size_t indent) {
  std::string result;
  for (char c : text) {
    auto control = (c >= 0 && c < ' ' && c != '\n' && c != '\t') || c == 0x7f;
    result += control ? '?' : c;
    if (c == '\n')
      result.append(indent, ' ');
  }
  return result;
}

} // namespace

std::string elapsed_text(double seconds) {
  std::array<char, 48> text{};
  // In tenths, truncated, so that no minute has 60.0 s.
  auto tenths = static_cast<long long>(std::max(seconds, 0.0) * 10);
  auto whole = tenths / 10;
  if (whole < 60)
    std::snprintf(text.data(), text.size(), "%lld.%lld s", whole, tenths % 10);
  else if (whole < 3600)
    std::snprintf(text.data(), text.size(), "%lld:%02lld", whole / 60,
                  whole % 60);
  else
    std::snprintf(text.data(), text.size(), "%lld:%02lld:%02lld", whole / 3600,
                  whole / 60 % 60, whole % 60);
  return text.data();
}

std::string state_text(const run_status& x) {
  std::string text{to_string(x.state)};
  std::ranges::replace(text, '_', ' ');
  if (x.state != run_state::initializing) // Its number is not known yet.
    text += concat(", attempt ", x.attempt);
  if (x.world_size > 0)
    text += ", " + counted(static_cast<std::uint64_t>(x.world_size), "rank");
  return text;
}

std::string report_text(const run_status& x, int columns) {
  std::string text;
  if (x.last_report)
    text = concat("report ", *x.last_report, ", ");
  if (x.elapsed_s >= shortest_time_s)
    text += rate_text(x.reports_per_second) + ", ";
  text += elapsed_text(x.elapsed_s);
  return with_metrics(std::move(text), x, ": ", columns);
}

std::string progress_text(const epoch_progress& x) {
  return concat("epoch ", x.epoch, ": ", x.batch, '/', x.batches, ", ",
                elapsed_text(x.left_s), " left");
}

std::string live_text(const run_status& x, double elapsed_s, int columns) {
  auto text = state_text(x) + " | " + counted(x.reports, "report");
  if (x.reports > 0 && elapsed_s >= shortest_time_s)
    text += ", " + rate_text(x.reports_per_second);
  text += " | " + elapsed_text(elapsed_s);
  if (x.progress)
    text += " | " + progress_text(*x.progress);
  if (x.callback_queue > 0)
    text += " | " + counted(x.callback_queue, "unanswered callback call");
  return with_metrics(std::move(text), x, " | ", columns);
}

run_state end_state_of(run_status_kind x) {
  switch (x) {
    case run_status_kind::running:
      return run_state::running;
    case run_status_kind::finished:
      return run_state::finished;
    case run_status_kind::errored:
      return run_state::errored;
    case run_status_kind::aborted:
      return run_state::aborted;
    case run_status_kind::preempted:
      return run_state::preempted;
  }
  return run_state::errored;
}

run_summary summary_of(const result& x, std::uint64_t reports,
                       double elapsed_s) {
  run_summary summary{.outcome = end_state_of(x.status),
                      .name = x.path.filename().string(),
                      .reports = reports,
                      .attempts = x.attempts,
                      .elapsed_s = elapsed_s,
                      .last_metrics = x.metrics,
                      .path = x.path.string()};
  // Someone may have removed it during the run.
  auto found = look_up(x.path);
  auto is_gone = found && !found->exists();
  if (is_gone)
    summary.path += ", which no longer exists";
  if (!x.best_checkpoints.empty() && !is_gone)
    summary.best_checkpoint = x.best_checkpoints.back().data.path().string();
  if (x.error)
    summary.reason = {x.error->code, x.error->message};
  return summary;
}

std::string to_string(const run_summary& x) {
  auto text =
    concat(x.name, ' ', to_string(x.outcome), ": ",
           counted(x.reports, "report"), " in ", counted(x.attempts, "attempt"),
           ", ", elapsed_text(x.elapsed_s), '\n');
  auto line = [&text](const std::string& label, const std::string& value) {
    text += concat("  ", label, hanging(value, label.size() + 2), '\n');
  };
  if (x.reason)
    line("error: ", x.reason.message);
  if (!x.last_metrics.empty())
    line("last metrics: ",
         metrics_text(x.last_metrics, console_progress::line_columns));
  if (x.best_checkpoint)
    line("best checkpoint: ", *x.best_checkpoint);
  line("files: ", x.path);
  return text;
}

} // namespace troupe::internal
