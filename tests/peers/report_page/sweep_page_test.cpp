// The page of a sweep whose trials are known, opened in Chromium.

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/peers/report_page/drawn_chart.hpp"
#include "tests/support/chromium.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/callbacks/report_page/sweep_page.hpp"
#include "troupe/runtime/sweep/search_space.hpp"

namespace troupe::internal::test {

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// Texts behind each *before* in *text*, up to *after*.
std::vector<std::string> all_between(const std::string& text,
                                     const std::string& before,
                                     const std::string& after) {
  std::vector<std::string> result;
  for (auto at = text.find(before); at != text.npos;
       at = text.find(before, at)) {
    at += before.size();
    result.push_back(text.substr(at, text.find(after, at) - at));
  }
  return result;
}

std::string only_between(const std::string& text, const std::string& before,
                         const std::string& after) {
  auto all = all_between(text, before, after);
  EXPECT_EQ(all.size(), 1u) << before;
  return all.empty() ? "" : all.front();
}

/// Six trials over a logarithmic, an integer, a text and a flag: each `lr` is
/// ten times the one before, and the loss is its distance from 0.01. The last
/// one failed.
class sweep_page_test : public ::testing::Test {
protected:
  void SetUp() override {
    TROUPE_NEEDS_CHROMIUM();
    facts_.name = "search";
    facts_.status = "finished";
    auto& x = facts_.content;
    x.description.begun = "2026-01-01T00:00:00Z";
    x.description.searcher = "grid";
    x.description.space = space_text({{"lr", log_uniform(1e-5, 1)},
                                      {"width", integers(1, 6)},
                                      {"kind", choice({"adam", "sgd"})},
                                      {"fast", choice({true, false})}});
    x.history.start.emplace();
    x.history.start->metric = "val/loss";
    x.history.start->trials = 8;
    for (std::size_t i = 0; i < 6; ++i)
      x.history.trials.push_back(trial_of(i));
  }

  static trial trial_of(std::size_t i) {
    trial x;
    x.index = i;
    x.name = trial_name(i);
    auto power = static_cast<double>(i) - 5;
    x.params = {{"lr", std::pow(10, power)},
                {"width", static_cast<std::int64_t>(i) + 1},
                {"kind", i % 2 == 0 ? "adam" : "sgd"},
                {"fast", i < 3}};
    x.status = i == 5 ? run_status_kind::errored : run_status_kind::finished;
    x.reports = 10 * i;
    x.seconds = 1.5;
    if (i == 5)
      x.reason = "rank 0: <b>nan</b>";
    else
      x.metrics = {{"val/loss", std::abs(power + 2) + 0.5}};
    x.score = x.metrics.find_number("val/loss");
    return x;
  }

  /// Opens the page, and does what *script* says in it.
  chromium_page open(const std::string& script = "",
                     const chromium_options& options = {}) const {
    auto html = sweep_page(facts_);
    if (!script.empty()) {
      const std::string policy = "script-src ";
      auto begin = html.find(policy) + policy.size();
      html.replace(begin, html.find('"', begin) - begin, "'unsafe-inline'");
      html.insert(html.rfind("</script>"), ";\n" + script + "\n");
    }
    write_bytes(folder_ / "compare.html", html);
    auto page = open_in_chromium(folder_ / "compare.html", options);
    page.dom = without_scripts(std::move(page.dom));
    return page;
  }

  /// The trials in the order of the table, without those that a brush hides.
  static std::vector<std::string> rows(const std::string& dom) {
    std::vector<std::string> result;
    for (auto& row : all_between(dom, "<tr data-trial=\"", "</tr>"))
      if (row.substr(0, row.find('>')).find("hidden") == row.npos)
        result.push_back(row.substr(row.find("trial-"), 10));
    return result;
  }

  /// The classes of each trial's line, by index.
  static std::map<int, std::string> lines(const std::string& dom) {
    std::map<int, std::string> result;
    for (auto& line : all_between(dom, "<path class=\"trial", "</path>"))
      result[std::stoi(only_between(line, "data-trial=\"", "\""))] =
        line.substr(0, line.find('"'));
    return result;
  }

  /// Presses on the axis *name* at the share *from* of its height from the top,
  /// and lets go at *to*.
  static std::string drag(const std::string& name, double from, double to) {
    return "{ const grip = [...document.querySelectorAll('.axis')].find(x => "
           "x.dataset.name === '"
           + name
           + "').querySelector('.grip');\n"
             "const box = document.querySelector('.parallel')"
             ".getBoundingClientRect();\n"
             "const at = share => ({ bubbles: true, pointerId: 1, clientY: "
             "box.top + 34 + share * 336 });\n"
             "grip.dispatchEvent(new PointerEvent('pointerdown', at("
           + std::to_string(from)
           + ")));\ngrip.dispatchEvent(new PointerEvent('pointermove', at("
           + std::to_string((from + to) / 2)
           + ")));\ngrip.dispatchEvent(new PointerEvent('pointerup', at("
           + std::to_string(to) + "))); }\n";
  }

  temporary_folder folder_;
  sweep_facts facts_;
};

} // namespace

TEST_F(sweep_page_test, draws_each_trial_over_parallel_axes) {
  auto page =
    open("", {.screenshot = fs::path{TROUPE_SCREENSHOTS} / "sweep.png"});
  EXPECT_EQ(page.console, "");
  EXPECT_THAT(page.requests, IsEmpty());
  EXPECT_THAT(all_between(page.dom, "data-name=\"", "\""),
              ElementsAre("lr", "width", "kind", "fast", "val/loss"));
  EXPECT_THAT(page.dom, HasSubstr("<dt>Finished</dt><dd>5 of 8</dd>"));
  EXPECT_THAT(page.dom, HasSubstr("<dd>0.5, trial-0003</dd>"));
  auto paths = lines(page.dom);
  ASSERT_EQ(paths.size(), 6u);
  EXPECT_EQ(paths[3], " best");
  // On the logarithmic axis they have the same distances, the smallest lowest.
  std::map<int, double> heights;
  for (auto& line : all_between(page.dom, "<path class=\"trial", "</path>")) {
    auto path = only_between(line, " d=\"", "\"");
    heights[std::stoi(only_between(line, "data-trial=\"", "\""))] =
      std::stod(path.substr(path.find(',') + 1));
  }
  for (int i = 1; i < 6; ++i)
    EXPECT_NEAR(heights[i - 1] - heights[i], 336.0 / 5, 0.35) << i;
  // One without a score ends before the last axis.
  auto failed = only_between(page.dom, "data-trial=\"5\" style=", "</path>");
  EXPECT_EQ(all_between(only_between(failed, " d=\"", "\""), "L", ",").size(),
            3u);
}

TEST_F(sweep_page_test, lists_the_best_first_and_sorts_by_any_column) {
  auto page = open();
  EXPECT_THAT(rows(page.dom),
              ElementsAre("trial-0003", "trial-0002", "trial-0004",
                          "trial-0001", "trial-0000", "trial-0005"));
  EXPECT_THAT(page.dom, HasSubstr("rank 0: &lt;b&gt;nan&lt;/b&gt;"));
  const std::string click = "document.querySelector('button[data-column=\""
                            "param width\"]').click();";
  page = open(click + click);
  EXPECT_EQ(page.console, "");
  EXPECT_THAT(rows(page.dom),
              ElementsAre("trial-0005", "trial-0004", "trial-0003",
                          "trial-0002", "trial-0001", "trial-0000"));
  EXPECT_THAT(page.dom, HasSubstr("aria-sort=\"descending\""));
}

TEST_F(sweep_page_test, a_brush_on_an_axis_chooses_trials) {
  // The upper half: three of six, and of these the two with `sgd`.
  auto half = drag("lr", 0, 0.5);
  auto page = open(half);
  EXPECT_EQ(page.console, "");
  EXPECT_THAT(rows(page.dom),
              ElementsAre("trial-0003", "trial-0004", "trial-0005"));
  EXPECT_THAT(page.dom, HasSubstr("3 of 6 trials chosen."));
  auto paths = lines(page.dom);
  EXPECT_EQ(paths[0], " dim");
  EXPECT_EQ(paths[4], "");
  page = open(half + drag("kind", 0, 0.2));
  EXPECT_THAT(rows(page.dom), ElementsAre("trial-0003", "trial-0005"));
  // A click frees the axis.
  page = open(half + drag("kind", 0, 0.2) + drag("kind", 0.1, 0.1));
  EXPECT_EQ(rows(page.dom).size(), 3u);
  page = open(half + "document.querySelector('.clear').click();");
  EXPECT_EQ(rows(page.dom).size(), 6u);
  // With the keyboard: the lowest fifth.
  page = open("[...document.querySelectorAll('.grip')][1].dispatchEvent(new "
              "KeyboardEvent('keydown', { key: 'ArrowUp' }));");
  EXPECT_THAT(rows(page.dom), ElementsAre("trial-0001", "trial-0000"));
}

TEST_F(sweep_page_test, texts_from_outside_do_nothing) {
  const std::string attack = "</script><img src=x onerror=\"document.body"
                             ".dataset.hostile=1\"><!--";
  facts_.name = attack;
  facts_.complaints = {attack};
  auto& x = facts_.content;
  x.description.searcher = attack;
  x.description.space = space_text({{attack, choice({attack, "b"})}});
  x.history.start->metric = attack;
  x.history.end = sweep_end{run_status_kind::errored, "", attack};
  for (auto& one : x.history.trials) {
    one.params = {{attack, attack}};
    one.metrics = {{attack, 1.0}};
    one.score = 1.0;
    one.reason = attack;
  }
  auto page = open();
  EXPECT_EQ(page.console, "");
  EXPECT_THAT(page.requests, IsEmpty());
  EXPECT_THAT(page.dom, Not(HasSubstr("data-hostile=")));
  EXPECT_THAT(page.dom, Not(HasSubstr("<img")));
  EXPECT_EQ(lines(page.dom).size(), 6u);
}

TEST_F(sweep_page_test, without_its_script_the_page_shows_the_summary) {
  auto html = sweep_page(facts_);
  auto at = html.find("script-src ") + 11;
  html.replace(at, html.find('"', at) - at, "'none'");
  write_bytes(folder_ / "compare.html", html);
  auto page = open_in_chromium(folder_ / "compare.html");
  EXPECT_THAT(page.dom, HasSubstr("<p>finished: 6 trials, 1 failed; best "
                                  "val/loss 0.5: trial-0003 ("));
  EXPECT_THAT(without_scripts(page.dom), Not(HasSubstr("<section")));
}

TEST_F(sweep_page_test, a_sweep_without_trials_is_drawn) {
  facts_.content.history.trials.clear();
  auto page = open();
  EXPECT_EQ(page.console, "");
  EXPECT_THAT(page.dom, HasSubstr("No trial has begun yet."));
}

} // namespace troupe::internal::test
