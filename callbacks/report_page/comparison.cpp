#include "troupe/callbacks/report_page/comparison.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "troupe/callbacks/report_page/chart_data.hpp"
#include "troupe/callbacks/report_page/html_page.hpp"
#include "troupe/callbacks/report_page/page_data.hpp"
#include "troupe/callbacks/report_page/page_text.hpp"
#include "troupe/runtime/counted.hpp"
#include "troupe/runtime/storage/json.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

using json::object_writer;

/// Most names in the title.
constexpr std::size_t max_title_names = 4;

/// What runs may differ in; times and process ids always do.
constexpr std::array<std::string_view, 5> compared_labels{
  "Host", "User", "Program", "Troupe", "Compiler"};

// Runs of two storage folders may have one name.
void label_runs(std::vector<comparison::run>& runs) {
  std::map<std::string, std::size_t> count;
  for (auto& x : runs)
    ++count[x.path.filename().string()];
  for (auto& x : runs) {
    auto name = x.path.filename().string();
    x.label = count[name] == 1 ? name : x.path.string();
  }
}

/// Settings by name, in the order in which names appear first.
class setting_table {
public:
  explicit setting_table(std::size_t runs) : runs_(runs) {}

  void add(std::size_t run, const std::string& name, const std::string& value) {
    auto [i, is_new] = places_.emplace(name, rows_.size());
    if (is_new)
      rows_.push_back(
        {name, std::vector<std::optional<std::string>>(runs_), false});
    rows_[i->second].values[run] = value;
  }

  std::vector<comparison::setting> take() && {
    for (auto& row : rows_)
      row.differs = std::ranges::any_of(
        row.values, [&](auto& x) { return x != row.values.front(); });
    return std::move(rows_);
  }

private:
  std::size_t runs_;
  std::map<std::string, std::size_t> places_;
  std::vector<comparison::setting> rows_;
};

expected<void> read_journal(comparison::run& x) {
  if (!x.journal) {
    TROUPE_TRY(auto journal, digest_reader::open(x.path));
    x.journal = std::make_shared<digest_reader>(std::move(journal));
  }
  return x.journal->read();
}

expected<void> read_compared(comparison::run& x) {
  x.facts = read_main_facts(x.path);
  auto is_read = read_journal(x);
  if (!is_read && !x.journal && is_read.error().code == ec::invalid_argument)
    return is_read;
  if (!is_read)
    x.facts.complaints.push_back(is_read.error().message);
  return {};
}

void append_compared_run(std::string& out, const comparison::run& x) {
  object_writer to{out};
  auto& digest = x.digest();
  append_name(to.begin("name"), x.label);
  append_text(to.begin("path"), x.path.string());
  append_text(to.begin("status"), status_of(x.facts, digest));
  append_text(to.begin("error"), error_of(x.facts, digest));
  to.field("reports", digest.reports).field("world", digest.world_size);
  to.field("attempts", digest.attempts.size());
  to.field("checkpoints", digest.checkpoints.size());
  if (digest.first_time) {
    std::chrono::duration<double, std::milli> begin =
      digest.first_time->time_since_epoch();
    append_number(to.begin("begin"), std::round(begin.count()), 15);
    append_seconds(to.begin("seconds"), digest.seconds_at(digest.last_time));
  }
  if (auto best = best_of(x)) {
    auto& text = to.begin("best");
    append_name(text += '[', best->metric);
    text += concat(",\"", to_string(best->order), "\",");
    append_number(text, best->value, 6);
    text += ']';
  }
  to.end();
}

void append_settings(object_writer& out, std::string_view name,
                     const std::vector<comparison::setting>& all) {
  out.array_field(
    name, all,
    [](std::string& to, auto& x) {
      append_name(to += '[', x.name);
      json::append_list(to += ',', x.values, [](std::string& list, auto& y) {
        if (y)
          append_text(list, *y);
        else
          list += "null";
      });
      to += x.differs ? ",true]" : ",false]";
    },
    ",\n");
}

std::string title_of(const comparison& x) {
  std::vector<std::string_view> labels;
  for (auto& run : x.runs)
    labels.push_back(run.label);
  return listed(labels, max_title_names);
}

} // namespace

const journal_digest& comparison::run::digest() const {
  static const journal_digest none;
  return journal ? journal->digest() : none;
}

std::optional<best_value> best_of(const comparison::run& x) {
  if (!x.facts.state)
    return std::nullopt;
  auto& rule = x.facts.state->retention;
  auto& reported = x.digest().reported;
  auto found = reported.find(rule.checkpoint_score_attribute);
  if (found == reported.end())
    return std::nullopt;
  auto order = rule.checkpoint_score_order;
  auto& total = found->second.total();
  auto value = order == score_order::max ? total.max : total.min;
  if (!std::isfinite(value))
    return std::nullopt;
  return best_value{found->first, order, value};
}

expected<comparison> compare_runs(std::span<const fs::path> paths) {
  std::vector<comparison::run> runs;
  for (auto& path : paths)
    runs.emplace_back().path = path;
  return compare_runs(std::move(runs));
}

expected<comparison> compare_runs(std::vector<comparison::run> runs) {
  for (auto& run : runs)
    TROUPE_TRY_VOID(read_compared(run));
  comparison result;
  result.runs = std::move(runs);
  label_runs(result.runs);
  setting_table config{result.runs.size()}, environment{result.runs.size()};
  for (std::size_t i = 0; i < result.runs.size(); ++i) {
    auto& run = result.runs[i];
    for (auto& [name, value] : run.facts.config)
      config.add(i, name, value);
    for (auto& [name, value] : run.digest().params)
      config.add(i, name, value);
    for (auto& [name, value] : run.facts.environment)
      if (std::ranges::count(compared_labels, name) > 0)
        environment.add(i, name, value);
  }
  result.config = std::move(config).take();
  result.environment = std::move(environment).take();
  return result;
}

std::string comparison_data(const comparison& x) {
  std::string result;
  object_writer out{result, ",\n"};
  append_text(out.begin("name"), title_of(x));
  out.array_field("runs", x.runs, append_compared_run, ",\n");
  std::vector<labeled_digest> all;
  for (auto& run : x.runs)
    all.push_back({run.label, &run.digest()});
  auto left_out = append_compared_charts(out, all);
  std::vector<std::string> complaints;
  for (auto& run : x.runs)
    for (auto& one : complaints_of(run.facts, run.digest()))
      complaints.push_back(run.label + ": " + one);
  if (left_out > 0)
    complaints.push_back(concat("There are more metrics than this page draws: ",
                                counted(left_out, "name"), " left out."));
  out.array_field("complaints", complaints, append_text);
  append_settings(out, "config", x.config);
  append_settings(out, "environment", x.environment);
  out.end();
  return result;
}

std::string comparison_page(const comparison& x) {
  auto title = title_of(x);
  return to_html({title + " – compared", title,
                  counted(x.runs.size(), "run") + ", compared",
                  comparison_data(x), false});
}

} // namespace troupe::internal
