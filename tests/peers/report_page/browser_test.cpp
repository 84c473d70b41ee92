// The page of a run, opened in Chromium.

#include <gmock/gmock.h>

#include "tests/peers/report_page/browser_fixture.hpp"

namespace troupe::internal::test {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

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

// Doubles do not tell such steps from their neighbors.
TEST_F(browser_test, a_step_in_nanoseconds_is_drawn) {
  constexpr std::int64_t step = 1'700'000'000'000'000'000;
  written_run run;
  run.report({.index = 0, .values = {{{"loss", 1.0}}}});
  run.event(1, "tracker_log", {{"step", step}, {"v/seen", 1.0}});
  run.event(2, "tracker_log", {{"step", step + 1}, {"v/seen", 2.0}});
  auto page = page_of(run);
  EXPECT_EQ(page.console, "");
  drawn_chart chart{page.dom, "seen"};
  EXPECT_TRUE(chart.exists());
  EXPECT_GE(chart.x_tick_count(), 2u);
  EXPECT_LE(chart.x_tick_count(), 50u);
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
