#include <algorithm>
#include <ranges>
#include <set>

#include "troupe/callbacks/report_page/page_parts.hpp"
#include "troupe/callbacks/report_page/page_sections.hpp"
#include "troupe/runtime/store/retention.hpp"

namespace troupe {

namespace {

constexpr std::size_t max_rows = 50;
constexpr std::size_t max_metric_columns = 12;

/// Names of the numbers that checkpoints have; the score comes first.
std::vector<std::string>
checkpoint_columns(const std::vector<reported_checkpoint>& all,
                   const std::string& score) {
  std::set<std::string> names;
  for (auto& x : all)
    for (auto& [name, value] : x.values)
      if (value.is_number() && name != score)
        names.insert(name);
  std::vector<std::string> result;
  if (!score.empty())
    result.push_back(score);
  for (auto& name : names)
    if (result.size() < max_metric_columns)
      result.push_back(name);
  return result;
}

/// Those to show: the best first, and the latest in any case.
std::vector<const reported_checkpoint*> checkpoint_rows(const saved_run& x) {
  std::vector<const reported_checkpoint*> result;
  auto latest = x.checkpoints.empty() ? nullptr : &x.checkpoints.back();
  for (auto i :
       retention{x.retention}.ranking(x.checkpoints) | std::views::reverse)
    if (auto one = &x.checkpoints[i]; result.size() < max_rows || one == latest)
      result.push_back(one);
  return result;
}

const journal_digest::checkpoint* find_checkpoint(const journal_digest& digest,
                                                  const std::string& name) {
  auto& all = digest.checkpoints;
  auto i = std::ranges::find(all, name, &journal_digest::checkpoint::name);
  return i == all.end() ? nullptr : &*i;
}

std::string retention_text(const checkpoint_config& x) {
  std::string result = x.num_to_keep
                         ? "The best " + std::to_string(*x.num_to_keep)
                             + " and the latest are kept"
                         : "All are kept";
  if (x.checkpoint_score_attribute.empty())
    return result + "; the newest is the best.";
  return result + ", ranked by "
         + shortened(x.checkpoint_score_attribute, max_name_bytes)
         + (x.checkpoint_score_order == score_order::max
              ? ": higher is better."
              : ": lower is better.");
}

void append_checkpoint(html_text& out, const reported_checkpoint& x,
                       bool is_best, bool is_latest,
                       const journal_digest& digest,
                       const std::vector<std::string>& columns) {
  auto name = x.data.name();
  row_head(out, name);
  out.raw("<td>");
  if (is_best)
    out.raw("<span class=\"tag best\">best</span> ");
  if (is_latest)
    out.raw("<span class=\"tag\">latest</span>");
  out.raw("</td>");
  number_cell(out, std::to_string(x.index));
  number_cell(out, std::to_string(x.attempt));
  auto noted = find_checkpoint(digest, name);
  out.raw("<td>");
  if (noted)
    append_time(out, noted->time);
  out.raw("</td>");
  number_cell(out,
              noted && noted->seconds > 0 ? seconds_text(noted->seconds) : "");
  for (auto& column : columns) {
    auto value = x.values.find(column);
    number_cell(out, value ? shortened(to_string(*value), max_name_bytes) : "");
  }
  out.raw("</tr>\n");
}

/// The state is lost; the journal still knows which there were.
void append_journalled(html_text& out, const journal_digest& digest) {
  begin_table(out, "Checkpoints", {"Name", "Report", "Attempt", "When (UTC)"});
  auto& all = digest.checkpoints;
  auto first = all.size() - std::min(all.size(), max_rows);
  for (auto& x : all | std::views::drop(first) | std::views::reverse) {
    row_head(out, x.name);
    number_cell(out, std::to_string(x.index));
    number_cell(out, std::to_string(x.attempt)).raw("<td>");
    append_time(out, x.time).raw("</td></tr>\n");
  }
  end_table(out);
}

} // namespace

std::string best_checkpoint(const run_facts& facts) {
  if (!facts.state || facts.state->checkpoints.empty())
    return {};
  auto& all = facts.state->checkpoints;
  return all[retention{facts.state->retention}.ranking(all).back()].data.name();
}

void append_checkpoints(html_text& out, const run_facts& facts,
                        const journal_digest& digest) {
  begin_section(out, "checkpoints", "Checkpoints");
  auto committed = digest.checkpoints.size();
  if (!facts.state && committed > 0) {
    append_journalled(out, digest);
  } else if (!facts.state || facts.state->checkpoints.empty()) {
    out.raw("<p class=\"hint\">There is none.</p>\n");
  } else {
    auto& all = facts.state->checkpoints;
    auto rows = checkpoint_rows(*facts.state);
    out.raw("<p class=\"hint\">")
      .text(retention_text(facts.state->retention))
      .text(" " + std::to_string(committed) + " committed, "
            + std::to_string(all.size()) + " left"
            + (rows.size() < all.size()
                 ? ", the best " + std::to_string(rows.size()) + " shown."
                 : "."))
      .raw("</p>\n");
    auto metric_names = checkpoint_columns(
      all, facts.state->retention.checkpoint_score_attribute);
    std::vector<std::string> columns{"Name",    "",           "Report",
                                     "Attempt", "When (UTC)", "Commit took"};
    columns.insert(columns.end(), metric_names.begin(), metric_names.end());
    begin_table(out, "Checkpoints", columns);
    for (auto* x : rows)
      append_checkpoint(out, *x, x == rows.front(), x == &all.back(), digest,
                        metric_names);
    end_table(out);
  }
  end_section(out);
}

} // namespace troupe
