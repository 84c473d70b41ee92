#include "troupe/callbacks/report_page/page_sections.hpp"

#include <algorithm>
#include <cmath>
#include <ranges>

#include "troupe/callbacks/report_page/page_parts.hpp"
#include "troupe/callbacks/status_text.hpp"

namespace troupe {

namespace {

constexpr std::size_t max_attempt_rows = 100;
constexpr std::size_t max_rank_rows = 1024;
constexpr std::size_t max_text_bytes = 500;

std::string status_of(const run_facts& facts, const journal_digest& digest) {
  // The journal's last word is newer than the state's.
  if (digest.end)
    return digest.end->status;
  return std::string{
    to_string(facts.state ? facts.state->status : run_status_kind::running)};
}

std::string error_of(const run_facts& facts, const journal_digest& digest) {
  if (digest.end)
    return digest.end->error;
  // A run that goes on may still have the error of an earlier life.
  if (!facts.state || !facts.state->error
      || facts.state->status == run_status_kind::running)
    return {};
  return facts.state->error->message;
}

void fact(html_text& out, const char* name, std::string_view value) {
  out.raw("<div><dt>").text(name).raw("</dt><dd>").text(value);
  out.raw("</dd></div>\n");
}

std::vector<std::string> complaints_of(const run_facts& facts,
                                       const journal_digest& digest) {
  auto result = facts.complaints;
  if (digest.damage_count > 0)
    result.push_back(
      count_text(digest.damage_count, "line")
      + " of the journal could not be read; what they said is missing here.");
  for (auto& x : digest.damages)
    result.push_back(x);
  if (!digest.left_out.empty())
    result.push_back(
      "There are more metrics than this page draws: "
      + count_text(digest.left_out.size(), "name") + " left out, the first is "
      + shortened(*digest.left_out.begin(), max_name_bytes) + ".");
  return result;
}

void append_complaints(html_text& out,
                       const std::vector<std::string>& complaints) {
  if (complaints.empty())
    return;
  out.raw("<div class=\"notice\" role=\"note\"><strong>Not everything of this "
          "run could be shown.</strong><ul>\n");
  for (auto& x : complaints)
    out.element("li", x);
  out.raw("</ul></div>\n");
}

void append_attempts(html_text& out, const journal_digest& digest) {
  auto& all = digest.attempts;
  out.raw("<h3>Attempts</h3>\n");
  begin_table(out, "Attempts",
              {"Attempt", "Began (UTC)", "First report", "Reports",
               "Went on from", "Ended by"});
  auto first = all.size() - std::min(all.size(), max_attempt_rows);
  for (auto& x : all | std::views::drop(first)) {
    row_head(out, std::to_string(x.number)).raw("<td>");
    append_time(out, x.time).raw("</td>");
    number_cell(out, std::to_string(x.first_report));
    number_cell(out, std::to_string(x.reports));
    out.element("td", x.resume)
      .raw("<td class=\"long\">")
      .text(shortened(x.failure, max_text_bytes))
      .raw("</td></tr>\n");
  }
  end_table(out);
}

void append_events(html_text& out, const journal_digest& digest) {
  out.raw("<details><summary>Events (")
    .text(digest.events.size() < digest.event_count
            ? "the last " + std::to_string(digest.events.size()) + " of "
                + std::to_string(digest.event_count)
            : std::to_string(digest.event_count))
    .raw(")</summary>\n");
  begin_table(out, "Events", {"Event", "When (UTC)", "Attempt", "What"});
  for (auto& x : digest.events) {
    row_head(out, x.kind).raw("<td>");
    append_time(out, x.time).raw("</td>");
    number_cell(out, std::to_string(x.attempt));
    out.raw("<td class=\"long\">")
      .text(shortened(to_string(x.fields), max_text_bytes))
      .raw("</td></tr>\n");
  }
  end_table(out);
  out.raw("</details>\n");
}

std::string finite_text(double x) {
  return std::isfinite(x) ? number_text(x) : "not finite";
}

void append_values(html_text& out, const journal_digest::curve_map& curves,
                   const char* over) {
  for (auto& [name, x] : curves) {
    row_head(out, name);
    number_cell(out, finite_text(x.last().mean));
    number_cell(out, finite_text(x.total().min));
    number_cell(out, finite_text(x.total().max));
    number_cell(out, number_text(x.last().x, 12) + ' ' + over);
    number_cell(out, std::to_string(x.total().samples)).raw("</tr>\n");
  }
}

void place_of_charts(html_text& out, const char* group) {
  out.raw("<div class=\"charts\" data-group=\"").raw(group).raw("\"></div>\n");
}

void append_log(html_text& out, const log_tail& x, bool open) {
  out.raw(open ? "<details open>" : "<details>").raw("<summary>");
  out.text(x.file);
  if (!x.whole)
    out.raw(" <span class=\"hint\">its end</span>");
  out.raw("</summary>\n<pre tabindex=\"0\" aria-label=\"")
    .text(x.file)
    .raw("\">")
    .text(x.text.empty() ? "(empty)" : x.text)
    .raw("</pre></details>\n");
}

} // namespace

void append_overview(html_text& out, const run_facts& facts,
                     const journal_digest& digest) {
  auto status = status_of(facts, digest);
  out.raw("<div class=\"title\"><h1>").text(facts.name).raw("</h1>");
  out.raw("<span class=\"status\" data-status=\"").text(status).raw("\">");
  out.text(status).raw("</span></div>\n<dl class=\"facts\">\n");
  fact(out, "Reports", std::to_string(digest.reports));
  fact(out, "Ranks",
       digest.world_size > 0 ? std::to_string(digest.world_size) : "–");
  fact(out, "Attempts", std::to_string(digest.attempts.size()));
  fact(out, "Checkpoints", std::to_string(digest.checkpoints.size()));
  if (digest.first_time) {
    fact(out, "Time span", elapsed_text(digest.seconds_at(digest.last_time)));
    out.raw("<div><dt>Last entry (UTC)</dt><dd>");
    append_time(out, digest.last_time).raw("</dd></div>\n");
  }
  out.raw("</dl>\n");
  append_complaints(out, complaints_of(facts, digest));
  if (auto reason = error_of(facts, digest); !reason.empty())
    out
      .raw("<div class=\"notice error\" role=\"note\"><strong>The run did not "
           "finish.</strong><pre>")
      .text(reason)
      .raw("</pre></div>\n");
}

void append_metrics(html_text& out, const journal_digest& digest) {
  begin_section(out, "metrics", "Metrics");
  if (digest.reported.empty() && digest.logged.empty())
    out.raw("<p class=\"hint\">No metric has been reported yet.</p>\n");
  place_of_charts(out, "metrics");
  if (!digest.logged.empty()) {
    out.raw("<h3>Logged by the train loop</h3>\n");
    place_of_charts(out, "logged");
  }
  if (!digest.reported.empty() || !digest.logged.empty()) {
    out.raw("<details><summary>Values as a table</summary>\n");
    begin_table(
      out, "Values of metrics",
      {"Metric", "Last mean", "Lowest", "Highest", "Last at", "Values"});
    append_values(out, digest.reported, "report");
    append_values(out, digest.logged, "step");
    end_table(out);
    out.raw("</details>\n");
  }
  if (!digest.texts.empty()) {
    out.raw("<h3>Texts, the last of each</h3>\n");
    run_facts::name_values all;
    for (auto& [name, text] : digest.texts)
      all.emplace_back(name, shortened(text, max_text_bytes));
    name_values_table(out, "Texts", all);
  }
  end_section(out);
}

void append_times(html_text& out, const journal_digest& digest) {
  begin_section(out, "times", "Time per report");
  if (digest.reports == 0) {
    out.raw("<p class=\"hint\">There is no report yet.</p>\n");
    end_section(out);
    return;
  }
  place_of_charts(out, "times");
  if (digest.ranks.empty()) {
    out.raw("<p class=\"hint\">The journal of this run does not say how long "
            "each rank took; the curve shows the time from report to "
            "report.</p>\n");
    end_section(out);
    return;
  }
  begin_table(out, "Time per report of each rank",
              {"Rank", "Mean", "Longest", "Last", "Reports", "Mean, compared"});
  double slowest = 0;
  auto mean = [](const journal_digest::rank_times& x) {
    return x.sum / static_cast<double>(std::max<std::uint64_t>(x.reports, 1));
  };
  for (auto& x : digest.ranks)
    slowest = std::max(slowest, mean(x));
  for (std::size_t rank = 0;
       rank < std::min(digest.ranks.size(), max_rank_rows); ++rank) {
    auto& x = digest.ranks[rank];
    row_head(out, std::to_string(rank));
    number_cell(out, seconds_text(mean(x)));
    number_cell(out, seconds_text(x.max));
    number_cell(out, seconds_text(x.last));
    number_cell(out, std::to_string(x.reports));
    auto share = slowest > 0 ? 100 * mean(x) / slowest : 0;
    out.raw("<td class=\"bar\"><span style=\"width:")
      .raw(number_text(share, 3))
      .raw("%\"></span></td></tr>\n");
  }
  end_table(out);
  end_section(out);
}

void append_history(html_text& out, const journal_digest& digest) {
  begin_section(out, "history", "What happened");
  if (digest.attempts.empty())
    out.raw("<p class=\"hint\">No attempt has begun yet.</p>\n");
  else
    append_attempts(out, digest);
  if (digest.event_count > 0)
    append_events(out, digest);
  end_section(out);
}

void append_facts(html_text& out, const run_facts& facts,
                  const journal_digest& digest) {
  begin_section(out, "config", "Config");
  auto config = facts.config;
  config.insert(config.end(), digest.params.begin(), digest.params.end());
  if (config.empty())
    out.raw("<p class=\"hint\">The train loop has none.</p>\n");
  else
    name_values_table(out, "Config", config);
  end_section(out);
  begin_section(out, "environment", "Environment");
  if (facts.environment.empty())
    out.raw("<p class=\"hint\">It is not known.</p>\n");
  else
    name_values_table(out, "Environment", facts.environment);
  end_section(out);
  begin_section(out, "logs", "Last log lines");
  if (facts.logs.empty())
    out.raw("<p class=\"hint\">No rank has printed anything.</p>\n");
  for (auto& x : facts.logs)
    append_log(out, x, facts.logs.size() <= 2 || &x == &facts.logs.front());
  end_section(out);
}

} // namespace troupe
