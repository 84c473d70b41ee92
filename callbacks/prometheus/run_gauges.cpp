#include "troupe/callbacks/prometheus/run_gauges.hpp"

#include <algorithm>
#include <cmath>
#include <variant>

#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

// *quotes*: whether the text is quoted.
std::string escaped(std::string_view text, bool quotes) {
  std::string result;
  for (auto c : utf8_text(text))
    if (c == '\\')
      result += "\\\\";
    else if (c == '\n')
      result += "\\n";
    else if (c == '"' && quotes)
      result += "\\\"";
    else
      result += c;
  return result;
}

} // namespace

void prometheus_text::family(std::string_view name, std::string_view type,
                             std::string_view help) {
  family_ = name;
  text_ += concat("# HELP ", family_, ' ', escaped(help, false), '\n');
  text_ += concat("# TYPE ", family_, ' ', type, '\n');
}

void prometheus_text::sample(const labels& of, double value,
                             std::string_view suffix) {
  begin_sample(of, suffix);
  static constexpr non_finite_words words{"NaN", "+Inf", "-Inf"};
  if (std::isfinite(value))
    append_number(text_, value);
  else
    text_ += words.of(value);
  text_ += '\n';
}

void prometheus_text::sample(const labels& of, std::uint64_t value,
                             std::string_view suffix) {
  begin_sample(of, suffix);
  append_number(text_, value);
  text_ += '\n';
}

void prometheus_text::begin_sample(const labels& of, std::string_view suffix) {
  text_ += family_;
  text_ += suffix;
  auto separator = '{';
  for (auto& [name, value] : of) {
    text_ += separator;
    text_ += name;
    text_ += "=\"" + escaped(value, true) + "\"";
    separator = ',';
  }
  text_ += of.empty() ? " " : "} ";
}

void run_gauges::add(const tracker_record& x) {
  attempt_ = x.attempt;
  if (auto row = std::get_if<journaled_batch>(&x.content)) {
    ++reports_;
    report_ = row->index;
    wait_.add(row->wait_s);
    if (!row->checkpoint.empty())
      checkpoint_.add(row->checkpoint_s);
    step_s_ = row->step_s;
    add_values(values_of(*row, ranks_));
  } else if (auto logged = std::get_if<logged_metrics>(&x.content)) {
    add_values(logged->values);
  } else if (std::holds_alternative<attempt_record>(x.content)) {
    ++attempts_;
  }
}

// Groups are joined by `_`, as in Prometheus's own names.
void run_gauges::add_values(const metrics& values) {
  for (auto& [name, value] : values) {
    if (!value.is_number())
      continue;
    auto shown = name;
    std::ranges::replace(shown, '/', '_');
    if (auto known = metrics_.find(shown); known != metrics_.end())
      known->second = value.number();
    else if (metrics_.size() < max_metrics_)
      metrics_.emplace(std::move(shown), value.number());
    else
      ++left_out_;
  }
}

void run_gauges::write(prometheus_text& out,
                       const std::optional<run_status>& now,
                       bool gauges) const {
  write_counters(out);
  if (!gauges)
    return;
  if (now)
    write_status(out, *now);
  write_gauges(out);
}

void run_gauges::write_counters(prometheus_text& out) const {
  const prometheus_text::labels run{{"run", run_}};
  out.family("troupe_reports_total", "counter",
             "Reports that every rank has delivered.");
  out.sample(run, reports_);
  out.family("troupe_attempts_total", "counter",
             "Groups of ranks that were started.");
  out.sample(run, attempts_);
  out.family("troupe_report_wait_seconds", "histogram",
             "Time from the first rank's report to the last rank's.");
  wait_.write(out, run);
  out.family("troupe_checkpoint_seconds", "histogram",
             "Time to commit a checkpoint.");
  checkpoint_.write(out, run);
}

void run_gauges::write_status(prometheus_text& out,
                              const run_status& now) const {
  const prometheus_text::labels run{{"run", run_}};
  out.family("troupe_run_state", "gauge",
             "1 for the current state of the run.");
  for (auto i = 0; i <= static_cast<int>(run_state::preempted); ++i) {
    auto x = static_cast<run_state>(i);
    out.sample({{"run", run_}, {"state", std::string{to_string(x)}}},
               std::uint64_t{x == now.state});
  }
  auto gauge = [&](std::string_view name, std::string_view help, auto value) {
    out.family(name, "gauge", help);
    out.sample(run, value);
  };
  gauge("troupe_workers", "Ranks of the group.", double(now.world_size));
  gauge("troupe_reports_per_second", "Over the last few seconds.",
        now.reports_per_second);
  gauge("troupe_elapsed_seconds", "Time since this driver started.",
        now.elapsed_s);
  gauge("troupe_callback_queue", "Calls to callbacks without an answer.",
        now.callback_queue);
  out.family("troupe_callback_seconds_total", "counter",
             "Seconds spent in callbacks.");
  out.sample(run, now.callback_s);
}

void run_gauges::write_gauges(prometheus_text& out) const {
  const prometheus_text::labels run{{"run", run_}};
  if (attempt_) {
    out.family("troupe_attempt", "gauge", "Number of the attempt.");
    out.sample(run, *attempt_);
  }
  if (report_) {
    out.family("troupe_step", "gauge", "Index of the last report.");
    out.sample(run, *report_);
  }
  if (!step_s_.empty()) {
    out.family("troupe_step_seconds", "gauge",
               "Time of a rank's loop between two reports.");
    for (std::size_t rank = 0; rank < step_s_.size(); ++rank)
      out.sample({{"run", run_}, {"rank", std::to_string(rank)}},
                 step_s_[rank]);
  }
  if (!metrics_.empty()) {
    out.family("troupe_metric", "gauge",
               "Last value that the train loop reported.");
    for (auto& [name, value] : metrics_)
      out.sample({{"run", run_}, {"name", name}}, value);
  }
}

} // namespace troupe::internal
