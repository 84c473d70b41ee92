#include "troupe/callbacks/report_page/report_page.hpp"

#include <cmath>
#include <stop_token>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/sanitized.hpp"
#include "tests/support/written_run.hpp"
#include "troupe/runtime/storage/checksum.hpp"
#include "troupe/runtime/storage/json.hpp"

namespace troupe::internal::test {

namespace {

using json::document;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string page_of(const written_run& x) {
  auto html = render_report_page(x.path());
  EXPECT_TRUE(html) << html.error().message;
  return html.value_or("");
}

/// What the script of the page *html* draws.
document data_in(const std::string& html) {
  const std::string mark = "<script type=\"application/json\" id=\"data\">";
  auto begin = html.find(mark) + mark.size();
  return document::parse(html.substr(begin, html.find("</", begin) - begin));
}

document data_of(const written_run& x) {
  return data_in(page_of(x));
}

/// The only curve of the first metric.
document first_curve(const document& data) {
  return data["groups"]["metrics"]["charts"].at(0)["curves"].at(0);
}

std::size_t count_of(std::string_view what, std::string_view text) {
  std::size_t count = 0;
  for (auto i = text.find(what); i != text.npos; i = text.find(what, i + 1))
    ++count;
  return count;
}

void write_description(const written_run& run, std::string text) {
  append_sum(text);
  write_bytes(run.path() / "run.json", text);
}

} // namespace

TEST(report_page_test, a_run_without_reports_has_a_page) {
  written_run run;
  auto html = page_of(run);
  auto data = data_in(html);
  EXPECT_EQ(data["status"], "running");
  EXPECT_EQ(data["reports"], 0);
  EXPECT_TRUE(data["begin"].is_null());
  EXPECT_THAT(data["groups"]["metrics"]["charts"], IsEmpty());
  EXPECT_THAT(data["logs"], IsEmpty());
  EXPECT_THAT(
    html, HasSubstr("<p>running: 0 reports, 0 attempts, 0 checkpoints</p>"));
}

TEST(report_page_test, the_page_says_in_a_line_what_became_of_the_run) {
  written_run run;
  run.begin_attempt(0, 0);
  run.report({.index = 0, .values = {{}, {}}, .checkpoint = "c0"});
  run.event(65, "run_ended", {{"status", "<finished>"}});
  EXPECT_THAT(page_of(run), HasSubstr("<h1>run</h1>\n<p>&lt;finished&gt;: 1 "
                                      "report of 2 ranks, 1 attempt, 1 "
                                      "checkpoint, 1:05</p>"));
}

TEST(report_page_test, the_config_is_flat_and_the_environment_named) {
  written_run run{R"({"config":{"lr":0.25,"optimizer":{"name":"adam"}}})"};
  auto data = data_of(run);
  EXPECT_EQ(data["config"],
            document::parse(R"([["lr","0.25"],["optimizer/name","adam"]])"));
  std::vector<std::string> names;
  for (auto& x : data["environment"])
    names.push_back(x.at(0));
  EXPECT_THAT(names, Contains("Compiler"));
}

TEST(report_page_test, a_config_that_is_not_json_is_shown_as_it_is) {
  written_run run{"lr = 1 <fast>"};
  EXPECT_EQ(data_of(run)["config"],
            document::parse(R"([["config","lr = 1 <fast>"]])"));
}

TEST(report_page_test, the_best_checkpoints_come_first_with_their_metrics) {
  written_run run;
  run.begin_attempt(0, 0);
  for (std::uint64_t i = 0; i < 3; ++i)
    run.report({.index = i,
                .seconds = 1.0 * static_cast<double>(i),
                .values = {{{"loss", 1.0}}},
                .checkpoint = "c" + std::to_string(i)});
  saved_run state;
  state.retention = {2, "loss", score_order::min};
  state.checkpoints = {run.checkpoint_of("c1", 1, {{"loss", 0.125}}),
                       run.checkpoint_of("c2", 2, {{"loss", 0.5}})};
  run.state(state);
  auto shown = data_of(run)["checkpoints"];
  EXPECT_EQ(shown["committed"], 3);
  EXPECT_EQ(shown["left"], 2);
  EXPECT_EQ(shown["keep"], 2);
  EXPECT_EQ(shown["by"], "loss");
  EXPECT_EQ(shown["order"], "min");
  EXPECT_EQ(shown["columns"], document({"loss"}));
  EXPECT_EQ(shown["rows"], document::parse(R"([
    {"name":"c1","x":1,"attempt":0,"t":1,"took":0.02,"best":true,
     "values":["0.125"]},
    {"name":"c2","x":2,"attempt":0,"t":2,"took":0.02,"latest":true,
     "values":["0.5"]}])"));
  EXPECT_EQ(shown["marks"], document::parse(R"([
    {"name":"c0","x":0,"t":0},{"name":"c1","x":1,"t":1,"best":true},
    {"name":"c2","x":2,"t":2}])"));
}

TEST(report_page_test, a_checkpoint_that_was_made_again_has_its_own_time) {
  written_run run;
  run.begin_attempt(0, 0);
  run.report({.index = 0, .seconds = 1, .values = {{}}, .checkpoint = "c0"});
  run.attempt = 1;
  run.begin_attempt(5, 0);
  run.report({.index = 0, .seconds = 7, .values = {{}}, .checkpoint = "c0"});
  saved_run state;
  state.checkpoints = {run.checkpoint_of("c0", 0, {})};
  run.state(state);
  auto shown = data_of(run)["checkpoints"];
  EXPECT_EQ(shown["rows"].at(0)["t"], 7);
  EXPECT_EQ(shown["marks"], document::parse(R"([
    {"name":"c0","x":0,"t":1},{"name":"c0","x":0,"t":7,"best":true}])"));
}

TEST(report_page_test, events_are_shown_in_sentences) {
  written_run run;
  run.begin_attempt(0, 0);
  run.event(1, "journal_tail_cut", {{"bytes", 8}});
  auto shown = data_of(run)["events"]["last"];
  EXPECT_EQ(shown[0]["what"], "begins at report 0");
  EXPECT_EQ(shown[1]["what"], "the journal ended in a line that is not whole: "
                              "its 8 bytes were cut off");
}

TEST(report_page_test, nothing_that_comes_from_outside_becomes_markup) {
  // With a line separator, which ends lines of scripts, and a change of the
  // direction of writing.
  const std::string attack =
    "<script>alert('x')</script><!--\\\"\xE2\x80\xA8\xE2\x80\xAE";
  written_run run{R"({"config":{"<img src=x>":"</td><script>1</script>"}})"};
  run.begin_attempt(0, 0);
  run.report({.index = 0,
              .values = {{{attack, 1.0}, {"text", attack}, {"\xff", 2.0}}},
              .step_s = {1.0}});
  run.event(1, "ranks_failed", {{"reason", attack}});
  run.event(2, "<b>kind</b>", {{"<i>", attack}});
  run.event(3, "run_ended", {{"status", attack}, {"error", attack}});
  run.log(0, attack + "\xfe\x1b[31mred\x1b[0m\n");
  auto html = page_of(run);
  EXPECT_EQ(count_of("<script", html), 2u) << "the data and the page's own";
  EXPECT_EQ(count_of("</script", html), 2u);
  for (auto markup : {"<!--", "<img", "<b>", "<i>", "\xff", "\xfe"})
    EXPECT_THAT(html, Not(HasSubstr(markup)));
  auto data = data_in(html);
  EXPECT_EQ(data["texts"].at(0).at(1), attack);
  EXPECT_EQ(data["error"], attack);
  EXPECT_EQ(data["attempts"]["last"].at(0)["failure"], attack);
  EXPECT_EQ(first_curve(data)["label"], attack);
  EXPECT_EQ(data["logs"].at(0)["text"], attack + "\xEF\xBF\xBDred\n");
}

TEST(report_page_test, a_name_of_a_run_becomes_no_markup) {
  written_run run;
  write_description(run, R"({"format":1,"name":"</title><script>1</script>")");
  auto html = page_of(run);
  EXPECT_EQ(count_of("<script", html), 2u);
  EXPECT_THAT(html, HasSubstr("<h1>&lt;/title&gt;&lt;script&gt;1"));
}

TEST(report_page_test, the_end_of_long_logs_is_shown) {
  written_run run;
  std::string text;
  for (int i = 0; i < 100'000; ++i)
    text += "line " + std::to_string(i) + '\n';
  run.log(0, text);
  run.log(11, "short\n");
  write_bytes(run.path() / "logs" / "rank_x.log", "not a rank");
  auto logs = data_of(run)["logs"];
  ASSERT_EQ(logs.size(), 2u) << "no rank printed rank_x.log";
  std::string end = logs[0]["text"];
  EXPECT_TRUE(end.starts_with("line 99800\n"));
  EXPECT_TRUE(end.ends_with("\nline 99999\n"));
  EXPECT_EQ(logs[0]["whole"], false);
  EXPECT_EQ(
    logs[1],
    document({{"file", "rank_11.log"}, {"text", "short\n"}, {"whole", true}}));
}

TEST(report_page_test, a_damaged_journal_says_so_and_shows_the_rest) {
  written_run run;
  run.begin_attempt(0, 0);
  run.report({.index = 0, .values = {{{"loss", 1.0}}}});
  run.damage("{\"batch\":1,\"rotten\n");
  run.report({.index = 2, .seconds = 2, .values = {{{"loss", 3.0}}}});
  run.damage("{\"batch\":3,\"torn");
  auto data = data_of(run);
  EXPECT_THAT(data["complaints"].dump(),
              HasSubstr("1 line of the journal could not be read"));
  EXPECT_THAT(data["complaints"].dump(), HasSubstr("journal.jsonl line 4"));
  EXPECT_EQ(first_curve(data)["mean"], document({1, 3}));
}

TEST(report_page_test, lost_files_are_named) {
  written_run run;
  run.begin_attempt(0, 0);
  run.report({.index = 0, .values = {{}}, .checkpoint = "c0"});
  fs::remove(run.path() / "run.json");
  write_bytes(run.path() / "state.json", "rotten");
  auto data = data_of(run);
  EXPECT_THAT(data["complaints"].dump(), HasSubstr("run.json"));
  EXPECT_THAT(data["complaints"].dump(), HasSubstr("state.json"));
  EXPECT_EQ(data["checkpoints"]["rows"].at(0)["name"], "c0");
  EXPECT_FALSE(data["checkpoints"].contains("left"));
}

TEST(report_page_test, an_older_description_with_fewer_fields_will_do) {
  written_run run;
  write_description(run, R"({"format":1,"name":"old","host":"there")");
  auto data = data_of(run);
  EXPECT_EQ(data["name"], "old");
  EXPECT_EQ(data["environment"], document::parse(R"([["Host","there"]])"));
  EXPECT_THAT(data["complaints"].dump(), Not(HasSubstr("malformed")));
}

TEST(report_page_test, without_times_of_ranks_it_has_those_of_reports) {
  written_run run;
  run.report({.index = 0, .values = {{}}});
  run.report({.index = 1, .seconds = 0.5, .values = {{}}});
  auto data = data_of(run);
  EXPECT_THAT(data["ranks"], IsEmpty());
  auto charts = data["groups"]["times"]["charts"];
  ASSERT_EQ(charts.size(), 1u);
  EXPECT_EQ(charts[0]["title"], "From report to report");
}

TEST(report_page_test, of_many_ranks_one_curve_stands_for_all) {
  written_run run;
  run.report({.index = 0,
              .values = std::vector<metrics>(9),
              .step_s = {1, 1, 1, 1, 1, 1, 1, 1, 10}});
  auto data = data_of(run);
  auto chart = data["groups"]["times"]["charts"].at(0);
  EXPECT_EQ(chart["title"], "Step time over all ranks");
  ASSERT_EQ(chart["curves"].size(), 1u);
  EXPECT_EQ(chart["curves"][0]["mean"], document({2}));
  EXPECT_EQ(chart["curves"][0]["min"], document({1}));
  EXPECT_EQ(chart["curves"][0]["max"], document({10}));
  ASSERT_EQ(data["ranks"].size(), 9u); // in the table
  EXPECT_EQ(data["ranks"][8], document({10, 10, 10, 1}));
}

TEST(report_page_test, a_metric_that_is_not_finite_is_named_so) {
  written_run run;
  run.report({.index = 0, .values = {{{"loss", std::log(-1.0)}}}});
  auto curve = first_curve(data_of(run));
  EXPECT_EQ(curve["mean"], document::parse("[null]"));
  EXPECT_EQ(curve["bad"], document({0}));
  EXPECT_EQ(curve["total"], document::parse("[null,0,null,null,1]"));
}

TEST(report_page_test, the_largest_numbers_stay_numbers) {
  written_run run;
  run.report({.index = 0, .values = {{{"huge", 1.7e308}}}});
  run.report({.index = 1, .values = {{{"huge", -1.7e308}}}});
  run.event(2, "tracker_log", {{"step", 1e308}, {"v/tiny", 5e-324}});
  auto data = data_of(run);
  EXPECT_EQ(first_curve(data)["mean"], document({1.7e308, -1.7e308}));
  EXPECT_EQ(first_curve(data)["total"],
            document({-1.7e308, 1, -1.7e308, 1.7e308, 2}));
  auto tiny = data["groups"]["logged"]["charts"].at(0)["curves"].at(0);
  EXPECT_EQ(data["axes"].at(tiny["axis"].get<std::size_t>())["x"],
            document({1e308}));
}

TEST(report_page_test, long_names_are_cut) {
  const std::string tail(200'000, 'x');
  written_run run{R"({"config":{"setting )" + tail + R"(":1}})"};
  run.begin_attempt(0, 0);
  run.report(
    {.index = 0, .values = {{{"number " + tail, 1.0}, {"text " + tail, "a"}}}});
  run.event(1, "tracker_log", {{"step", 1}, {"v/logged " + tail, 1.0}});
  run.event(2, "kind " + tail);
  metrics others;
  for (std::size_t i = 1; i < journal_digest::max_curves; ++i)
    others["m" + std::to_string(i)] = 1.0;
  run.report({.index = 1, .values = {others}});
  run.report({.index = 2, .values = {{{"one more " + tail, 1.0}}}});
  saved_run state;
  state.retention = {2, "score " + tail, score_order::min};
  state.checkpoints = {run.checkpoint_of("c0", 1, {{"score " + tail, tail}})};
  run.state(state);
  auto html = page_of(run);
  EXPECT_LT(html.size(), tail.size());
  for (auto name :
       {"setting", "number", "text", "logged", "kind", "score", "one more"})
    EXPECT_THAT(html, HasSubstr(name + std::string{" xxx"}));
}

TEST(report_page_test,
     a_resumed_run_does_not_show_the_error_that_ended_it_before) {
  written_run run;
  saved_run state;
  state.error = run_error{ec::rank_failed, "it fell", {}};
  run.state(state);
  EXPECT_EQ(data_of(run)["error"], "");
  state.status = run_status_kind::errored;
  run.state(state);
  EXPECT_EQ(data_of(run)["error"], "it fell");
}

TEST(report_page_test, what_was_added_since_is_on_the_next_page) {
  written_run run;
  run.begin_attempt(0, 0);
  run.report({.index = 0, .values = {{{"loss", 1.0}}}});
  auto page = report_page::open(run.path());
  ASSERT_TRUE(page);
  EXPECT_THAT(page->render().value(), HasSubstr("\"mean\":[1]"));
  run.report({.index = 1, .seconds = 1, .values = {{{"loss", 2.0}}}});
  auto grown = page->render();
  ASSERT_TRUE(grown);
  EXPECT_THAT(*grown, HasSubstr("\"mean\":[1,2]"));
  EXPECT_EQ(*grown, render_report_page(run.path()).value());
}

TEST(report_page_test, a_journal_that_was_replaced_is_read_again) {
  written_run run, other;
  for (std::uint64_t i = 0; i < 5; ++i)
    run.report({.index = i, .values = {{{"loss", 1.0}}}});
  other.report({.index = 0, .values = {{{"error", 7.0}}}});
  auto page = report_page::open(run.path());
  ASSERT_TRUE(page && page->render());
  fs::copy_file(other.path() / "journal.jsonl", run.path() / "journal.jsonl",
                fs::copy_options::overwrite_existing);
  auto html = page->render();
  ASSERT_TRUE(html);
  EXPECT_THAT(*html, HasSubstr("\"error\""));
  EXPECT_THAT(*html, Not(HasSubstr("\"loss\"")));
}

TEST(report_page_test, it_shows_nothing_that_a_link_leads_to) {
  temporary_folder elsewhere;
  write_bytes(elsewhere / "key", "a stranger's key\n");
  written_run run;
  run.log(0, "own words\n");
  fs::create_symlink(elsewhere / "key", run.path() / "logs/rank_1.log");
  auto html = page_of(run);
  EXPECT_THAT(html, HasSubstr("own words"));
  EXPECT_THAT(html, HasSubstr("rank_1.log is reached by a link"));
  EXPECT_THAT(html, Not(HasSubstr("stranger")));
  fs::rename(run.path() / "logs", elsewhere / "logs");
  fs::create_symlink(elsewhere / "logs", run.path() / "logs");
  EXPECT_THAT(page_of(run), Not(HasSubstr("own words")));
}

TEST(report_page_test, it_is_written_into_the_folder) {
  written_run run;
  ASSERT_TRUE(report_page::open(run.path()).value().write());
  EXPECT_EQ(bytes_of(run.path() / "report.html"),
            render_report_page(run.path()).value());
}

TEST(report_page_test, a_cancelled_page_is_not_written) {
  written_run run;
  auto page = report_page::open(run.path());
  ASSERT_TRUE(page);
  std::stop_source stop;
  stop.request_stop();
  auto ok = page->write(stop.get_token());
  ASSERT_FALSE(ok);
  EXPECT_EQ(ok.error().code, ec::stopped);
  EXPECT_FALSE(fs::exists(run.path() / "report.html"));
}

TEST(report_page_test, a_large_run_makes_a_page_of_a_few_megabytes) {
  written_run run;
  for (std::uint64_t i = 0; i < (sanitized ? 500 : 3000); ++i) {
    metrics values;
    for (int k = 0; k < 50; ++k)
      values["metric_" + std::to_string(k)] =
        static_cast<double>(i * 37 % 1001) / 1001.0 + k;
    run.report({.index = i,
                .seconds = 0.37 * static_cast<double>(i),
                .values = {values, values},
                .step_s = {0.1, 0.2}});
  }
  auto html = page_of(run);
  EXPECT_LT(html.size(), 4u << 20);
  EXPECT_GT(html.size(), 100u << 10);
}

TEST(report_page_test, what_is_not_a_run_is_refused_with_the_reason) {
  temporary_folder folder;
  auto missing = render_report_page(folder / "nowhere");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ec::storage);
  auto empty = render_report_page(folder.path());
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().code, ec::invalid_argument);
  written_run run;
  fs::remove(run.path() / "journal.jsonl");
  auto lost = render_report_page(run.path());
  ASSERT_FALSE(lost);
  EXPECT_THAT(lost.error().message, HasSubstr("has lost its journal.jsonl"));
}

TEST(report_page_test, a_journal_of_another_version_is_refused) {
  written_run run;
  std::string text = R"({"journal":2)";
  append_sum(text);
  write_bytes(run.path() / "journal.jsonl", text);
  auto page = render_report_page(run.path());
  ASSERT_FALSE(page);
  EXPECT_EQ(page.error().code, ec::unsupported);
}

} // namespace troupe::internal::test
