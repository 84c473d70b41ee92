// The page of a run whose values are known, opened in Chromium.

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/peers/report_page/drawn_chart.hpp"
#include "tests/support/chromium.hpp"
#include "tests/support/written_run.hpp"
#include "troupe/callbacks/report_page/comparison.hpp"
#include "troupe/callbacks/report_page/report_page.hpp"

namespace troupe::internal::test {

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr double pixel = 0.35; // two roundings to tenths, and a line between

/// The page *file*, and of its document only what the reader sees.
chromium_page open_page(const fs::path& file, const chromium_options& options) {
  auto page = open_in_chromium(file, options);
  page.dom = without_scripts(std::move(page.dom));
  return page;
}

chromium_page page_of(const written_run& run) {
  EXPECT_TRUE(report_page::open(run.path()).value().write());
  return open_page(run.path() / "report.html", {});
}

/// What stands below the heading of a section.
std::string section_of(const std::string& dom, const std::string& id) {
  auto begin = dom.find("<section id=\"" + id + "\"");
  if (begin == dom.npos)
    return {};
  begin = dom.find("</h2>", begin);
  return dom.substr(begin, dom.find("</section>", begin) - begin);
}

/// 20 reports of two ranks, one a second: `loss` falls from 100 to 5 on rank 0
/// and is 10 higher on rank 1. A checkpoint every 5 reports; attempt 1 begins
/// at report 12.
class browser_test : public ::testing::Test {
protected:
  static double loss(std::size_t report) {
    return 100 - 5.0 * static_cast<double>(report);
  }

  /// Up and down between the lowest number and the highest.
  static double huge(std::size_t report) {
    return report % 2 == 0 ? -1.7e308 : 1.7e308;
  }

  void SetUp() override {
    TROUPE_NEEDS_CHROMIUM();
    run_.begin_attempt(0, 0);
    saved_run state;
    state.retention = {2, "loss", score_order::min};
    for (std::uint64_t i = 0; i < 20; ++i) {
      if (i == 12) {
        run_.event(12, "ranks_failed", {{"reason", "Rank 1: killed"}});
        run_.attempt = 1;
        run_.begin_attempt(15, 12, "c9");
      }
      auto x = row(i);
      if (i % 5 == 4) {
        x.checkpoint = "c" + std::to_string(i);
        state.checkpoints.push_back(
          run_.checkpoint_of(x.checkpoint, i, x.values[0]));
      }
      run_.report(x);
      run_.event(x.seconds, "tracker_log",
                 {{"step", 10 * i}, {"v/seen", 2.0 * static_cast<double>(i)}});
    }
    run_.event(30, "run_ended", {{"status", "finished"}});
    run_.state(state);
    run_.log(0, "<b>not bold</b></script><script>console.error(1)</script>\n");
    ASSERT_TRUE(report_page::open(run_.path()).value().write());
  }

  static written_run::row row(std::uint64_t i) {
    constexpr auto nan = std::numeric_limits<double>::quiet_NaN();
    auto value = loss(i);
    written_run::row x;
    x.index = i;
    x.seconds = static_cast<double>(i < 12 ? i + 1 : i + 6);
    x.values = {{{"loss", value},
                 {"phase", "warm"},
                 {"norm", i == 7 ? nan : 3.0},
                 {"tiny", 1e-5 * value},
                 {"huge", huge(i)},
                 {"wide", std::pow(10, 32 * static_cast<double>(i) - 300)}},
                {{"loss", value + 10}, {"norm", i == 7 ? nan : 3.0}}};
    x.step_s = {0.25, 0.5};
    x.wait_s = 0.25;
    return x;
  }

  /// The page as it opens. The run of every test is the same, and so it is
  /// opened only once.
  const chromium_page& opened() const {
    static const auto page = open({});
    return page;
  }

  chromium_page open(const chromium_options& options) const {
    return open_page(run_.path() / "report.html", options);
  }

  /// Opens the page and does what *script* says.
  chromium_page open_and(const std::string& script,
                         const chromium_options& options = {}) const {
    // The browser's virtual time waits for timers, but for no frame.
    return open_changed(
      [&](std::string& html) {
        let_scripts(html, "'unsafe-inline'");
        html.insert(html.rfind("</script>"),
                    ";\nwindow.requestAnimationFrame = f => setTimeout(f);\n"
                      + script + "\n");
      },
      options);
  }

  /// Opens what *change* makes of the page.
  template <class Change>
  chromium_page open_changed(Change change,
                             const chromium_options& options = {}) const {
    auto html = bytes_of(run_.path() / "report.html");
    change(html);
    write_bytes(run_.path() / "changed.html", html);
    return open_page(run_.path() / "changed.html", options);
  }

  /// Lets those scripts run that *source* names, instead of the page's own.
  static void let_scripts(std::string& html, const std::string& source) {
    const std::string policy = "script-src ";
    auto begin = html.find(policy) + policy.size();
    html.replace(begin, html.find('"', begin) - begin, source);
  }

  static void replace(std::string& html, const std::string& from,
                      const std::string& to) {
    auto at = html.find(from);
    ASSERT_NE(at, html.npos) << from;
    html.replace(at, from.size(), to);
  }

  static constexpr auto summary =
    "<p>finished: 20 reports of 2 ranks, 2 attempts, 4 checkpoints, 30.0 s</p>";

  static fs::path screenshot(const std::string& name) {
    return fs::path{TROUPE_SCREENSHOTS} / (name + ".png");
  }

  written_run run_{R"({"config":{"lr":0.5}})"};
};

void expect_near(const drawn_point& x, const drawn_point& y) {
  EXPECT_NEAR(x.x, y.x, pixel);
  EXPECT_NEAR(x.y, y.y, pixel);
}

} // namespace

TEST_F(browser_test, the_page_has_no_errors_and_makes_no_requests) {
  auto& page = opened();
  EXPECT_EQ(page.exit_code, 0);
  EXPECT_EQ(page.console, "");
  EXPECT_THAT(page.requests, IsEmpty());
}

TEST_F(browser_test, every_section_is_drawn_in_its_place) {
  auto& dom = opened().dom;
  EXPECT_THAT(dom, HasSubstr("<h1>run</h1><span class=\"status\" "
                             "data-status=\"finished\">finished</span>"));
  EXPECT_THAT(dom, HasSubstr("<dt>Time span</dt><dd>30 s</dd>"));
  EXPECT_THAT(dom, Not(HasSubstr(summary)));
  EXPECT_THAT(dom, Not(HasSubstr("notice undrawn")));
  std::size_t at = dom.find("id=\"toolbar\"");
  for (auto id : {"metrics", "times", "checkpoints", "history", "config",
                  "environment", "logs"}) {
    EXPECT_THAT(dom, HasSubstr("<a href=\"#" + std::string{id} + "\">"));
    auto next = dom.find("<section id=\"" + std::string{id} + "\"");
    ASSERT_NE(next, dom.npos) << id;
    EXPECT_GT(next, at) << id;
    at = next;
  }
  auto metrics = section_of(dom, "metrics");
  EXPECT_LT(metrics.find("data-name=\"loss\""),
            metrics.find("<h3>Logged by the train loop</h3>"));
  EXPECT_LT(metrics.find("<h3>Logged by the train loop</h3>"),
            metrics.find("data-name=\"seen\""));
  EXPECT_THAT(metrics,
              HasSubstr("<th scope=\"row\">loss</th><td class=\"number\">10"
                        "</td><td class=\"number\">5</td><td "
                        "class=\"number\">110</td><td class=\"number\">19 "
                        "report</td><td class=\"number\">20</td>"));
  EXPECT_THAT(metrics, HasSubstr("<td class=\"number\">190 step</td>"));
  EXPECT_THAT(metrics, HasSubstr("<th scope=\"row\">phase</th><td>warm</td>"));
  auto times = section_of(dom, "times");
  EXPECT_THAT(times, HasSubstr("<th scope=\"row\">0</th><td "
                               "class=\"number\">250 ms</td>"));
  EXPECT_THAT(times, HasSubstr("style=\"width:50.0%\""));
  EXPECT_THAT(times, HasSubstr("style=\"width:100%\""));
  auto checkpoints = section_of(dom, "checkpoints");
  EXPECT_THAT(checkpoints, HasSubstr("The best 2 and the latest are kept, "
                                     "ranked by <bdi>loss</bdi>: lower is "
                                     "better. 4 committed, 4 left."));
  EXPECT_THAT(
    checkpoints,
    HasSubstr(
      "<tbody><tr><th scope=\"row\">c19</th><td><span class=\"tag "
      "best\">best</span> <span class=\"tag\">latest</span></td><td "
      "class=\"number\">19</td><td class=\"number\">1</td><td><time "
      "datetime=\"2026-01-01T00:00:25Z\">2026-01-01 00:00:25</time></td><td "
      "class=\"number\">20 ms</td><td class=\"number\">5</td>"));
  auto history = section_of(dom, "history");
  EXPECT_THAT(history, HasSubstr("<td class=\"long\">Rank 1: killed</td>"));
  EXPECT_THAT(history, HasSubstr("<td class=\"number\">12</td><td "
                                 "class=\"number\">8</td><td>c9</td>"));
  EXPECT_THAT(history, HasSubstr("<summary>Events (4)</summary>"));
  EXPECT_THAT(section_of(dom, "config"),
              HasSubstr("<th scope=\"row\">lr</th><td>0.5</td>"));
  EXPECT_THAT(section_of(dom, "environment"),
              HasSubstr("<th scope=\"row\">Compiler</th>"));
  EXPECT_THAT(section_of(dom, "logs"),
              HasSubstr("<summary>rank_0.log</summary>"));
  EXPECT_THAT(section_of(dom, "logs"),
              HasSubstr("&lt;b&gt;not bold&lt;/b&gt;&lt;/script&gt;"));
}

TEST_F(browser_test, several_runs_are_drawn_into_one_chart) {
  written_run other{R"({"config":{"lr":0.25}})"};
  other.begin_attempt(0, 0);
  for (std::uint64_t i = 0; i < 30; ++i)
    other.report({.index = i,
                  .seconds = static_cast<double>(i + 1),
                  .values = {{{"loss", 2.0 * static_cast<double>(i)}}}});
  std::vector<fs::path> paths{run_.path(), other.path()};
  auto compared = compare_runs(paths);
  ASSERT_TRUE(compared);
  compared->runs[0].label = "falling";
  compared->runs[1].label = "rising";
  write_bytes(run_.path() / "changed.html", comparison_page(*compared));
  auto page = open_page(run_.path() / "changed.html",
                        {.screenshot = screenshot("compared")});
  EXPECT_EQ(page.console, "");
  EXPECT_THAT(page.requests, IsEmpty());
  drawn_chart chart{page.dom, "loss"};
  auto curves = chart.curves();
  ASSERT_EQ(curves.size(), 2u);
  EXPECT_THAT(chart.marks("restart"), IsEmpty());
  ASSERT_EQ(curves[1].size(), 30u);
  for (std::size_t i = 0; i < 30; ++i) {
    auto x = static_cast<double>(i);
    expect_near(curves[1][i], {chart.x_of(x), chart.y_of(2 * x)});
  }
  EXPECT_THAT(section_of(page.dom, "config"),
              HasSubstr("<tr class=\"differs\"><th scope=\"row\">lr</th><td "
                        "class=\"long\">0.5</td><td class=\"long\">0.25</td>"));
  auto runs = section_of(page.dom, "runs");
  EXPECT_THAT(runs, HasSubstr("loss 5 <span class=\"hint\">lowest</span>"));
  EXPECT_THAT(runs, HasSubstr("data-status=\"finished\""));
  EXPECT_THAT(runs, HasSubstr("rising"));
}

TEST_F(browser_test, an_empty_run_is_drawn_without_errors) {
  auto page = page_of(written_run{});
  EXPECT_EQ(page.console, "");
  const std::vector<std::pair<std::string, std::string>> hints{
    {"metrics", "No metric has been reported yet."},
    {"times", "There is no report yet."},
    {"checkpoints", "There is none."},
    {"history", "No attempt has begun yet."},
    {"config", "The train loop has none."},
    {"logs", "No rank has printed anything."}};
  for (auto& [id, hint] : hints)
    EXPECT_THAT(section_of(page.dom, id), HasSubstr(hint));
}

TEST_F(browser_test, a_run_of_one_report_and_no_finite_number_is_drawn) {
  constexpr auto infinity = std::numeric_limits<double>::infinity();
  written_run run;
  run.report({.index = 0,
              .values = {{{"loss", infinity}, {"high", 1.7e308}}},
              .checkpoint = "c0"});
  run.event(1, "tracker_log", {{"step", infinity}, {"v/seen", 1}});
  fs::remove(run.path() / "state.json");
  auto page = page_of(run);
  EXPECT_EQ(page.console, "");
  EXPECT_THAT(section_of(page.dom, "metrics"),
              HasSubstr("<td class=\"number\">not finite</td>"));
  EXPECT_THAT(section_of(page.dom, "metrics"),
              HasSubstr("<td class=\"number\">1.7e308</td>"));
  EXPECT_THAT(section_of(page.dom, "times"),
              HasSubstr("does not say how long each rank took"));
  EXPECT_THAT(section_of(page.dom, "checkpoints"),
              HasSubstr("<th scope=\"row\">c0</th>"));
}

TEST_F(browser_test, a_checkpoint_that_the_journal_lacks_is_drawn) {
  written_run run;
  saved_run state;
  state.checkpoints = {run.checkpoint_of("c0", 7, {{"loss", 0.5}})};
  run.state(state);
  auto page = page_of(run);
  EXPECT_EQ(page.console, "");
  EXPECT_THAT(section_of(page.dom, "checkpoints"),
              HasSubstr("<td class=\"number\">7</td><td class=\"number\">0"
                        "</td><td></td><td class=\"number\"></td><td "
                        "class=\"number\">0.5</td>"));
}

TEST_F(browser_test, names_and_texts_from_outside_do_nothing) {
  const std::string attack = "</script><img src=x onerror=\"document.body"
                             ".dataset.hostile=1\"><!--\xE2\x80\xAE'&amp;";
  written_run run{R"({"config":{"<img src=y>":"</td><script>1</script>"}})"};
  run.begin_attempt(0, 0, attack);
  run.report({.index = 0,
              .values = {{{attack, 1.0}, {attack + "/b", 2.0}, {"t", attack}}},
              .step_s = {1.0},
              .checkpoint = attack});
  run.event(1, "tracker_log", {{"step", 1}, {"v/" + attack, 1.0}});
  run.event(2, "ranks_failed", {{"reason", attack}});
  run.event(3, attack, {{attack, attack}});
  run.event(4, "run_ended", {{"status", attack}, {"error", attack}});
  run.log(0, attack);
  auto page = page_of(run);
  EXPECT_EQ(page.console, "");
  EXPECT_THAT(page.requests, IsEmpty());
  EXPECT_THAT(page.dom, Not(HasSubstr("data-hostile")));
  EXPECT_THAT(page.dom, Not(HasSubstr("<img")));
  const std::string shown = "&lt;/script&gt;&lt;img src=x onerror=\"document"
                            ".body.dataset.hostile=1\"&gt;&lt;!--"
                            "\xE2\x80\xAE'&amp;amp;<";
  EXPECT_THAT(page.dom, HasSubstr("<span class=\"name\">" + shown));
  for (auto id : {"metrics", "checkpoints", "history", "logs"})
    EXPECT_THAT(section_of(page.dom, id), HasSubstr(shown)) << id;
}

TEST_F(browser_test, no_script_runs_but_the_page_s_own) {
  auto page = open_changed([](std::string& html) {
    replace(html, "<main>",
            "<main><script>document.body.dataset.hostile = 1</script>"
            "<b onclick='document.body.dataset.hostile = 1'>b</b>"
            "<script>document.querySelector('b').click()</script>");
  });
  EXPECT_THAT(page.dom, Not(HasSubstr("data-hostile")));
  EXPECT_TRUE(drawn_chart(page.dom, "loss").exists());
}

TEST_F(browser_test, without_its_script_the_page_shows_the_summary) {
  auto page =
    open_changed([](std::string& html) { let_scripts(html, "'none'"); },
                 {.height = 300, .screenshot = screenshot("without_script")});
  EXPECT_THAT(page.dom, HasSubstr("<h1>run</h1>\n" + std::string{summary}));
  EXPECT_THAT(page.dom,
              HasSubstr("A script draws the charts and tables of this page."));
  EXPECT_THAT(page.dom, Not(HasSubstr("<section")));
}

TEST_F(browser_test, a_page_that_cannot_be_drawn_says_so_below_the_summary) {
  auto page = open_changed(
    [](std::string& html) { replace(html, "id=\"data\">", "id=\"data\">,"); },
    {.height = 400, .screenshot = screenshot("undrawn")});
  EXPECT_THAT(page.console, HasSubstr("SyntaxError"));
  EXPECT_THAT(page.dom, HasSubstr(summary));
  EXPECT_THAT(page.dom, HasSubstr("This page could not be drawn."));
  EXPECT_THAT(page.dom, Not(HasSubstr("It did not run")));
}

TEST_F(browser_test, a_section_that_cannot_be_drawn_leaves_the_others) {
  auto page = open_changed(
    [](std::string& html) { replace(html, "\"ranks\":", "\"missing\":"); });
  EXPECT_THAT(page.console, HasSubstr("TypeError"));
  EXPECT_THAT(section_of(page.dom, "times"),
              HasSubstr("Time per report could not be drawn."));
  EXPECT_EQ(drawn_chart(page.dom, "loss").curves().size(), 1u);
  EXPECT_THAT(section_of(page.dom, "logs"), HasSubstr("rank_0.log"));
}

TEST_F(browser_test, a_page_with_an_error_or_a_request_would_be_noticed) {
  write_bytes(run_.path() / "bad.html",
              "<!DOCTYPE html><img src='http://127.0.0.1:1/x.png'>"
              "<script>nowhere()</script>");
  auto page = open_in_chromium(run_.path() / "bad.html");
  EXPECT_THAT(page.console, HasSubstr("nowhere"));
  EXPECT_THAT(page.requests, Not(IsEmpty()));
}

TEST_F(browser_test, the_mean_of_the_ranks_is_drawn_where_the_axes_say) {
  drawn_chart chart{opened().dom, "loss"};
  ASSERT_TRUE(chart.exists());
  ASSERT_GE(chart.x_tick_count(), 2u);
  ASSERT_GE(chart.y_tick_count(), 3u);
  ASSERT_EQ(chart.curves().size(), 1u);
  auto curve = chart.curves()[0];
  ASSERT_EQ(curve.size(), 20u);
  for (std::size_t i = 0; i < 20; ++i)
    expect_near(curve[i],
                {chart.x_of(static_cast<double>(i)), chart.y_of(loss(i) + 5)});
  EXPECT_EQ(chart.gaps(), 1u) << "the restart interrupts the line";
}

TEST_F(browser_test, the_band_reaches_from_the_lowest_to_the_highest_rank) {
  drawn_chart chart{opened().dom, "loss"};
  ASSERT_EQ(chart.bands().size(), 1u);
  auto band = chart.bands()[0];
  ASSERT_EQ(band.size(), 40u);
  for (std::size_t i = 0; i < 12; ++i) { // attempt 0: there and back
    auto x = chart.x_of(static_cast<double>(i));
    expect_near(band[i], {x, chart.y_of(loss(i) + 10)});
    expect_near(band[23 - i], {x, chart.y_of(loss(i))});
  }
  EXPECT_THAT(drawn_chart(opened().dom, "tiny").bands(), IsEmpty());
}

TEST_F(browser_test, checkpoints_and_restarts_are_marked_on_the_report_axis) {
  drawn_chart chart{opened().dom, "loss"};
  auto near = [&](double report) {
    return ::testing::DoubleNear(chart.x_of(report), pixel);
  };
  EXPECT_THAT(chart.marks("checkpoint"),
              ElementsAre(near(4), near(9), near(14)));
  EXPECT_THAT(chart.marks("checkpoint best"), ElementsAre(near(19)));
  EXPECT_THAT(chart.marks("restart"), ElementsAre(near(11.5)));
  EXPECT_THAT(chart.markup(), HasSubstr(">attempt 1<"));
}

TEST_F(browser_test, the_time_axis_places_everything_by_its_time) {
  auto page =
    open_and("document.querySelector('.over input[value=time]').click();");
  EXPECT_EQ(page.console, "");
  drawn_chart chart{page.dom, "loss"};
  auto curve = chart.curves().at(0);
  ASSERT_EQ(curve.size(), 20u);
  for (std::uint64_t i = 0; i < 20; ++i)
    expect_near(curve[i],
                {chart.x_of(row(i).seconds), chart.y_of(loss(i) + 5)});
  EXPECT_THAT(chart.marks("restart"),
              ElementsAre(::testing::DoubleNear(chart.x_of(15), pixel)));
  EXPECT_THAT(chart.marks("checkpoint best"),
              ElementsAre(::testing::DoubleNear(chart.x_of(25), pixel)));
}

TEST_F(browser_test, the_log_scale_places_values_by_their_logarithm) {
  auto page =
    open_and("document.querySelector('.scale input[value=log]').click();");
  EXPECT_EQ(page.console, "");
  drawn_chart chart{page.dom, "tiny"};
  auto curve = chart.curves().at(0);
  ASSERT_EQ(curve.size(), 20u);
  // Of three points the middle one distinguishes a logarithm from a line.
  auto share = (curve[10].y - curve[0].y) / (curve[19].y - curve[0].y);
  EXPECT_NEAR(
    share, std::log(loss(10) / loss(0)) / std::log(loss(19) / loss(0)), 0.01);
}

TEST_F(browser_test, the_largest_numbers_are_drawn_where_the_axes_say) {
  drawn_chart chart{opened().dom, "huge"};
  ASSERT_GE(chart.y_tick_count(), 3u);
  auto curve = chart.curves().at(0);
  ASSERT_EQ(curve.size(), 20u);
  EXPECT_GT(curve[0].y, curve[1].y + 50);
  for (std::size_t i = 0; i < 20; ++i)
    EXPECT_NEAR(curve[i].y, chart.y_of(huge(i)), pixel);
}

TEST_F(browser_test, a_log_scale_reaches_from_the_smallest_to_the_largest) {
  auto page =
    open_and("document.querySelector('.scale input[value=log]').click();");
  EXPECT_EQ(page.console, "");
  auto curve = drawn_chart{page.dom, "wide"}.curves().at(0);
  ASSERT_EQ(curve.size(), 20u);
  EXPECT_GT(curve[0].y, curve[19].y + 50);
  EXPECT_NEAR(curve[0].y - curve[10].y, (curve[0].y - curve[19].y) * 10 / 19,
              pixel);
}

TEST_F(browser_test, a_value_that_is_not_finite_is_marked_and_interrupts) {
  drawn_chart chart{opened().dom, "norm"};
  EXPECT_EQ(chart.gaps(), 2u);
  ASSERT_EQ(chart.marks("bad").size(), 1u);
  EXPECT_NEAR(chart.marks("bad")[0] + 4, chart.x_of(7), pixel);
}

TEST_F(browser_test, what_the_loop_logged_is_drawn_over_its_steps) {
  drawn_chart chart{opened().dom, "seen"};
  ASSERT_TRUE(chart.exists());
  auto curve = chart.curves().at(0);
  ASSERT_EQ(curve.size(), 20u);
  for (std::size_t i = 0; i < 20; ++i) {
    auto x = static_cast<double>(i);
    expect_near(curve[i], {chart.x_of(10 * x), chart.y_of(2 * x)});
  }
  // Attempt 1 began between the times of steps 110 and 120.
  ASSERT_EQ(chart.marks("restart").size(), 1u);
  EXPECT_GT(chart.marks("restart")[0], chart.x_of(110));
  EXPECT_LT(chart.marks("restart")[0], chart.x_of(120));
}

TEST_F(browser_test, each_rank_has_its_own_step_time) {
  auto& dom = opened().dom;
  drawn_chart chart{dom, "Step time of each rank"};
  auto curves = chart.curves();
  ASSERT_EQ(curves.size(), 2u);
  for (std::size_t i = 0; i < 20; ++i) {
    EXPECT_NEAR(curves[0].at(i).y, chart.y_of(0.25), pixel);
    EXPECT_NEAR(curves[1].at(i).y, chart.y_of(0.5), pixel);
  }
  EXPECT_THAT(chart.markup(), HasSubstr("rank 1<span>0.5 s</span>"));
  EXPECT_THAT(dom, HasSubstr("<td class=\"number\">250 ms</td>"));
}

TEST_F(browser_test, keys_read_the_values_of_a_curve) {
  auto page =
    open_and("const plot = document.querySelector('[data-name=loss] svg.plot');"
             "for (const key of ['Home', 'ArrowRight', 'ArrowRight'])"
             "  plot.dispatchEvent(new KeyboardEvent('keydown', { key }));");
  drawn_chart chart{page.dom, "loss"};
  EXPECT_THAT(chart.markup(), HasSubstr("<span class=\"value\">95</span>"));
  EXPECT_THAT(chart.markup(), HasSubstr("report 2 · 3 s · 90 to 100<"));
  EXPECT_THAT(page.dom,
              HasSubstr("loss: 95, report 2 · 3 s · 90 to 100</div>"));
  EXPECT_THAT(drawn_chart(page.dom, "tiny").markup(),
              HasSubstr("<span class=\"value\">0.0009</span>"))
    << "other charts follow";
}

TEST_F(browser_test, the_pointer_reads_the_values_below_it) {
  auto page =
    open_and("const plot = document.querySelector('[data-name=loss] svg.plot');"
             "const box = plot.getBoundingClientRect();"
             "plot.dispatchEvent(new PointerEvent('pointermove',"
             "  { clientX: box.right - 1, clientY: box.top + 50 }));");
  drawn_chart chart{page.dom, "loss"};
  EXPECT_THAT(chart.markup(), HasSubstr("report 19 · 25 s · 5 to 15<"));
  EXPECT_THAT(chart.markup(), HasSubstr("class=\"cursor\""));
}

TEST_F(browser_test, every_text_has_enough_contrast_and_every_control_a_name) {
  const std::string script = R"(
    const numbers = color => color.match(/[\d.]+/g).map(Number);
    const light = color => numbers(color).slice(0, 3).map(x => x / 255)
      .map(x => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4)
      .reduce((sum, x, i) => sum + x * [0.2126, 0.7152, 0.0722][i], 0);
    const ground = x => {
      for (; x; x = x.parentElement) {
        const color = getComputedStyle(x).backgroundColor;
        if (/^rgb\(/.test(color)) return color;
      }
    };
    let worst = [99, ''], texts = 0;
    document.querySelectorAll('details').forEach(x => x.open = true);
    for (const x of document.querySelectorAll('body *')) {
      const own = [...x.childNodes].some(n => n.nodeType === 3 && n.data.trim());
      if (!own || !x.checkVisibility() || x.closest('script, noscript, title')) continue;
      const style = getComputedStyle(x);
      const [a, b] = [light(x.closest('svg') ? style.fill : style.color), light(ground(x))];
      const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      ++texts;
      if (ratio < worst[0]) worst = [ratio, x.outerHTML];
    }
    const nameless = [...document.querySelectorAll('button, input, svg.plot, [tabindex]')]
      .filter(x => !x.getAttribute('aria-label') && !x.closest('label')?.textContent);
    document.body.dataset.contrast = worst[0] >= 4.5 && texts > 100 ? 'enough' : `${worst} of ${texts}`;
    document.body.dataset.nameless = nameless.length;)";
  for (auto dark : {false, true}) {
    auto page = open_and(script, {.dark = dark});
    EXPECT_THAT(page.dom, HasSubstr("data-contrast=\"enough\""))
      << page.dom.substr(page.dom.find("data-contrast"), 300);
    EXPECT_THAT(page.dom, HasSubstr("data-nameless=\"0\""));
  }
}

TEST_F(browser_test, nothing_is_wider_than_a_narrow_window) {
  auto page = open_and(
    "document.body.dataset.wide ="
    "  document.documentElement.scrollWidth - innerWidth;",
    {.width = 500, .height = 1600, .screenshot = screenshot("narrow")});
  EXPECT_THAT(page.dom, HasSubstr("data-wide=\"0\""));
}

TEST_F(browser_test, it_is_light_or_dark_as_the_system_or_the_reader_wishes) {
  // A page that shows the color of a pixel of each picture.
  auto look = [&](const fs::path& picture) {
    write_bytes(run_.path() / "look.html",
                "<!DOCTYPE html><p id=answer></p><script>function look(i) {"
                " const c = document.createElement('canvas');"
                " const p = c.getContext('2d'); p.drawImage(i, 0, 0);"
                " const [r, g, b] = p.getImageData(3, 3, 1, 1).data;"
                " answer.textContent = r + g + b > 600 ? 'light' :"
                "   r + g + b < 150 ? 'dark' : 'odd'; }</script>"
                "<img onload='look(this)' src='file://"
                  + picture.string() + "'>");
    return open_in_chromium(run_.path() / "look.html").dom;
  };
  const chromium_options tall{.height = 2400};
  auto light = tall, dark = tall, chosen = tall;
  light.screenshot = screenshot("light");
  dark.screenshot = screenshot("dark");
  dark.dark = true;
  chosen.screenshot = screenshot("dark_by_choice");
  open(light);
  open(dark);
  open_and("document.querySelector('.theme input[value=dark]').click();",
           chosen);
  EXPECT_THAT(look(light.screenshot), HasSubstr(">light</p>"));
  EXPECT_THAT(look(dark.screenshot), HasSubstr(">dark</p>"));
  EXPECT_THAT(look(chosen.screenshot), HasSubstr(">dark</p>"));
}

} // namespace troupe::internal::test
