#include "troupe/callbacks/report_page/report_page.hpp"

#include <cmath>
#include <stop_token>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/written_run.hpp"
#include "troupe/runtime/storage/checksum.hpp"

namespace troupe::test {

namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string page_of(const written_run& x) {
  auto html = render_report_page(x.path());
  EXPECT_TRUE(html) << html.error().message;
  return html.value_or("");
}

} // namespace

TEST(report_page_test, a_run_without_reports_has_a_page) {
  written_run run;
  auto html = page_of(run);
  EXPECT_THAT(html, HasSubstr("No metric has been reported yet."));
  EXPECT_THAT(html, HasSubstr("data-status=\"running\""));
  EXPECT_THAT(html, HasSubstr("No rank has printed anything."));
}

TEST(report_page_test, the_config_is_flat_and_the_environment_named) {
  written_run run{R"({"config":{"lr":0.25,"optimizer":{"name":"adam"}}})"};
  auto html = page_of(run);
  EXPECT_THAT(html, HasSubstr("<th scope=\"row\">lr</th><td>0.25</td>"));
  EXPECT_THAT(html,
              HasSubstr("<th scope=\"row\">optimizer/name</th><td>adam</td>"));
  EXPECT_THAT(html, HasSubstr("<th scope=\"row\">Compiler</th><td>"));
}

TEST(report_page_test, a_config_that_is_no_json_is_shown_as_it_is) {
  written_run run{"lr = 1 <fast>"};
  EXPECT_THAT(
    page_of(run),
    HasSubstr("<th scope=\"row\">config</th><td>lr = 1 &lt;fast&gt;"));
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
  auto html = page_of(run);
  EXPECT_THAT(html, HasSubstr("The best 2 and the latest are kept, ranked by "
                              "loss: lower is better. 3 committed, 2 left."));
  auto best = html.find("<th scope=\"row\">c1</th><td><span class=\"tag "
                        "best\">best</span>");
  auto latest = html.find("<th scope=\"row\">c2</th><td><span "
                          "class=\"tag\">latest</span>");
  ASSERT_NE(best, std::string::npos);
  ASSERT_NE(latest, std::string::npos);
  EXPECT_LT(best, latest);
  EXPECT_THAT(html, HasSubstr("<td class=\"number\">0.125</td>"));
  EXPECT_THAT(html, HasSubstr("20 ms")); // the commit
}

TEST(report_page_test, nothing_that_comes_from_outside_becomes_markup) {
  const std::string attack = "<script>alert('x')</script><!--";
  written_run run{R"({"config":{"<img src=x>":"</td><script>1</script>"}})"};
  run.begin_attempt(0, 0);
  run.report({.index = 0,
              .values = {{{attack, 1.0}, {"text", attack}, {"\xff", 2.0}}},
              .step_s = {1.0}});
  run.event(1, "ranks_failed", {{"reason", attack}});
  run.event(2, "<b>kind</b>", {{"<i>", attack}});
  run.event(3, "run_ended", {{"status", "errored"}, {"error", attack}});
  run.log(0, attack + "\xfe\x1b[31mred\x1b[0m\n");
  auto html = page_of(run);
  EXPECT_THAT(html, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(html, Not(HasSubstr("<img")));
  EXPECT_THAT(html, Not(HasSubstr("<b>")));
  EXPECT_THAT(html, Not(HasSubstr("<!--")));
  EXPECT_THAT(html, Not(HasSubstr("<i>")));
  EXPECT_THAT(html, Not(HasSubstr("\xff")));
  EXPECT_THAT(html, Not(HasSubstr("\xfe")));
  EXPECT_THAT(html, HasSubstr("&lt;!--\xEF\xBF\xBDred"));
}

TEST(report_page_test, the_end_of_long_logs_is_shown) {
  written_run run;
  std::string text;
  for (int i = 0; i < 100'000; ++i)
    text += "line " + std::to_string(i) + '\n';
  run.log(0, text);
  run.log(11, "short\n");
  write_bytes(run.path() / "logs" / "rank_x.log", "not a rank");
  auto html = page_of(run);
  EXPECT_THAT(html, HasSubstr("\nline 99999\n"));
  EXPECT_THAT(html, HasSubstr("\">line 99800\n"));
  EXPECT_THAT(html, Not(HasSubstr("line 99799\n")));
  EXPECT_THAT(html, HasSubstr("rank_0.log <span class=\"hint\">its end"));
  EXPECT_THAT(html, HasSubstr("short\n</pre>"));
  EXPECT_THAT(html, Not(HasSubstr("not a rank")));
}

TEST(report_page_test, a_damaged_journal_says_so_and_shows_the_rest) {
  written_run run;
  run.begin_attempt(0, 0);
  run.report({.index = 0, .values = {{{"loss", 1.0}}}});
  run.damage("{\"batch\":1,\"rotten\n");
  run.report({.index = 2, .seconds = 2, .values = {{{"loss", 3.0}}}});
  run.damage("{\"batch\":3,\"torn");
  auto html = page_of(run);
  EXPECT_THAT(html, HasSubstr("1 line of the journal could not be read"));
  EXPECT_THAT(html, HasSubstr("journal.jsonl line 4"));
  EXPECT_THAT(html, HasSubstr("\"mean\":[1,3]"));
}

TEST(report_page_test, lost_files_are_named) {
  written_run run;
  run.begin_attempt(0, 0);
  run.report({.index = 0, .values = {{}}, .checkpoint = "c0"});
  fs::remove(run.path() / "run.json");
  write_bytes(run.path() / "state.json", "rotten");
  auto html = page_of(run);
  EXPECT_THAT(html, HasSubstr("run.json"));
  EXPECT_THAT(html, HasSubstr("state.json"));
  EXPECT_THAT(html, HasSubstr("<th scope=\"row\">c0</th>"));
}

TEST(report_page_test, an_older_description_with_fewer_fields_will_do) {
  written_run run;
  std::string text = R"({"format":1,"name":"old","host":"there")";
  append_sum(text);
  write_bytes(run.path() / "run.json", text);
  auto html = page_of(run);
  EXPECT_THAT(html, HasSubstr("<h1>old</h1>"));
  EXPECT_THAT(html, HasSubstr("<td>there</td>"));
  EXPECT_THAT(html, Not(HasSubstr("malformed")));
}

TEST(report_page_test, without_times_of_ranks_it_says_so) {
  written_run run;
  run.report({.index = 0, .values = {{}}});
  run.report({.index = 1, .seconds = 0.5, .values = {{}}});
  EXPECT_THAT(page_of(run), HasSubstr("does not say how long each rank took"));
}

TEST(report_page_test, of_many_ranks_one_curve_stands_for_all) {
  written_run run;
  run.report({.index = 0,
              .values = std::vector<metrics>(9),
              .step_s = {1, 1, 1, 1, 1, 1, 1, 1, 10}});
  auto html = page_of(run);
  EXPECT_THAT(html, HasSubstr("Step time over all ranks"));
  EXPECT_THAT(html, HasSubstr("\"mean\":[2],\"min\":[1],\"max\":[10]"));
  EXPECT_THAT(html, Not(HasSubstr("\"rank 8\"")));
  EXPECT_THAT(html, HasSubstr("<th scope=\"row\">8</th>")); // in the table
}

TEST(report_page_test, a_metric_that_is_not_finite_is_named_so) {
  written_run run;
  run.report({.index = 0, .values = {{{"loss", std::log(-1.0)}}}});
  auto html = page_of(run);
  EXPECT_THAT(html, HasSubstr("<td class=\"number\">not finite</td>"));
  EXPECT_THAT(html, HasSubstr("\"mean\":[null],\"bad\":[0]"));
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

TEST(report_page_test, a_resumed_run_does_not_show_the_error_of_its_last_life) {
  written_run run;
  saved_run state;
  state.error = run_error{ec::rank_failed, "it fell", {}};
  run.state(state);
  EXPECT_THAT(page_of(run), Not(HasSubstr("it fell")));
  state.status = run_status_kind::errored;
  run.state(state);
  EXPECT_THAT(page_of(run), HasSubstr("it fell"));
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

TEST(report_page_test, a_journal_that_was_replaced_is_read_anew) {
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
  ASSERT_TRUE(write_report_page(run.path()));
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
  for (std::uint64_t i = 0; i < 3000; ++i) {
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

TEST(report_page_test, what_is_no_run_is_refused_with_the_reason) {
  temporary_folder folder;
  auto missing = render_report_page(folder / "nowhere");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message,
            "there is no folder " + (folder / "nowhere").string());
  auto empty = render_report_page(folder.path());
  ASSERT_FALSE(empty);
  EXPECT_THAT(empty.error().message, HasSubstr("is not the folder of a run"));
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

} // namespace troupe::test
