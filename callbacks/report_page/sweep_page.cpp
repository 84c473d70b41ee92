#include "troupe/callbacks/report_page/sweep_page.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "troupe/callbacks/report_page/html_page.hpp"
#include "troupe/callbacks/report_page/page_text.hpp"
#include "troupe/runtime/counted.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/json.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

using json::object_writer;

/// More lines cannot be told apart, and slow a browser down.
constexpr std::size_t max_trials = 2000;

constexpr std::size_t max_reason_bytes = 500;

std::string error_of(const sweep_facts& x) {
  auto& end = x.content.history.end;
  return end ? end->reason : "";
}

/// The trials that are shown, by index: all, or those with the best scores.
std::vector<const trial*> shown_trials(const sweep_facts& x) {
  std::vector<const trial*> result;
  for (auto& one : x.content.history.trials)
    result.push_back(&one);
  if (result.size() <= max_trials)
    return result;
  auto order = x.content.history.order();
  std::ranges::stable_sort(result, [&](const trial* a, const trial* b) {
    if (!a->score || !b->score)
      return a->score.has_value() && !b->score;
    return is_better(*a->score, *b->score, order);
  });
  result.resize(max_trials);
  std::ranges::sort(result, {}, &trial::index);
  return result;
}

void append_value(std::string& out, const metric_value& x) {
  if (auto text = std::get_if<std::string>(&x.variant()))
    append_text(out, *text);
  else if (x.is_number() && !std::isfinite(x.number()))
    out += "null";
  else
    json::append(out, x);
}

/// The params of the space, which is JSON.
json::ordered_document space_of(const sweep_facts& x) {
  auto result =
    json::ordered_document::parse(x.content.description.space, nullptr, false);
  return result.is_array() ? result : json::ordered_document::array();
}

void append_axis(std::string& out, const json::ordered_document& param) {
  object_writer to{out};
  append_name(to.begin("name"), param.value("name", ""));
  if (param.contains("choice")) {
    to.field("kind", "choice");
    to.begin("values") += json::text_of(param["choice"]);
  } else {
    auto is_real = param.contains("low");
    to.field("kind", is_real ? "number" : "integer");
    to.begin("low") += json::text_of(
      param.value(is_real ? "low" : "first", json::ordered_document{}));
    to.begin("high") += json::text_of(
      param.value(is_real ? "high" : "last", json::ordered_document{}));
    to.begin("log") += param.contains("scale") ? "true" : "false";
  }
  to.end();
}

void append_trial(std::string& out, const trial& x, const std::string& metric,
                  const json::ordered_document& space, const sweep_facts& of) {
  object_writer to{out};
  to.field("name", x.name);
  to.field("status",
           std::string{x.status == run_status_kind::running
                           && of.status != "running" && of.status != "elsewhere"
                         ? "unfinished"
                         : to_string(x.status)});
  to.array_field("values", space, [&](std::string& text, auto& param) {
    if (auto value = x.params.find(param.value("name", "")))
      append_value(text, *value);
    else
      text += "null";
  });
  if (x.score)
    append_number(to.begin("score"), *x.score, 12);
  if (auto last = x.metrics.find(metric))
    append_value(to.begin("last"), *last);
  to.field("reports", x.reports);
  append_seconds(to.begin("seconds"), x.seconds);
  append_text(to.begin("reason"), shortened(x.reason, max_reason_bytes));
  if (std::ranges::find(of.pages, x.name) != of.pages.end())
    to.field("page", x.name + '/' + run_layout::report_page);
  to.end();
}

void append_begin(object_writer& out, const std::string& text) {
  using milliseconds = std::chrono::duration<double, std::milli>;
  if (auto begin = parse_timestamp(text))
    append_number(out.begin("begin"),
                  milliseconds{begin->time_since_epoch()}.count(), 15);
  else
    out.null_field("begin");
}

/// "finished: 12 trials, 1 failed; best loss 0.01: trial-0002 (lr=0.1)"
std::string summary_of(const sweep_facts& x) {
  auto& history = x.content.history;
  auto& trials = history.trials;
  auto failed =
    std::ranges::count(trials, run_status_kind::errored, &trial::status);
  auto result = x.status + ": " + counted(trials.size(), "trial");
  if (failed > 0)
    result += concat(", ", failed, " failed");
  if (auto best = best_of(trials, history.order()))
    result += concat("; best ", history.metric(), ' ',
                     to_string(metric_value{*best->score}), ": ", best->name,
                     " (", to_string(best->params), ')');
  return result;
}

/// The sweep in the folder *path*, after its end.
expected<sweep_facts> read_sweep_facts(const fs::path& path) {
  sweep_facts result;
  TROUPE_TRY(result.content, read_sweep(path));
  result.name = path.filename().string();
  auto& end = result.content.history.end;
  result.status = end ? std::string{to_string(end->status)} : "lost";
  for (auto& x : result.content.history.trials) {
    auto page = look_up(path / x.name / run_layout::report_page);
    if (page && page->is_file())
      result.pages.push_back(x.name);
  }
  return result;
}

} // namespace

std::string sweep_data(const sweep_facts& x) {
  std::string result;
  object_writer out{result, ",\n"};
  append_text(out.begin("name"), x.name);
  append_text(out.begin("status"), x.status);
  append_text(out.begin("error"), error_of(x));
  auto& history = x.content.history;
  auto all = history.trials.size();
  auto shown = shown_trials(x);
  auto complaints = x.complaints;
  if (shown.size() < all)
    complaints.push_back(concat("The sweep has ", all,
                                " trials; these are the best ", shown.size(),
                                "."));
  out.array_field("complaints", complaints, append_text);
  append_begin(out, x.content.description.begun);
  {
    object_writer sweep{out.begin("sweep")};
    append_name(sweep.begin("metric"), history.metric());
    sweep.field("order", to_string(history.order()));
    append_name(sweep.begin("searcher"), x.content.description.searcher);
    if (auto planned = history.planned())
      sweep.field("planned", *planned);
    auto best = best_of(history.trials, history.order());
    if (auto i = std::ranges::find(shown, best); i != shown.end())
      sweep.field("best", i - shown.begin());
    sweep.end();
  }
  auto space = space_of(x);
  out.array_field("axes", space, append_axis, ",\n");
  out.array_field(
    "trials", shown,
    [&](std::string& text, const trial* one) {
      append_trial(text, *one, history.metric(), space, x);
    },
    ",\n");
  out.end();
  return result;
}

std::string sweep_page(const sweep_facts& x) {
  return to_html(
    {x.name + " – sweep", x.name, summary_of(x), sweep_data(x), false});
}

expected<void> write_sweep_page(const fs::path& path) {
  TROUPE_TRY(auto facts, read_sweep_facts(path));
  return replace_file(path / run_layout::sweep_page, sweep_page(facts));
}

} // namespace troupe::internal
