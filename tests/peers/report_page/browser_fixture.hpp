#pragma once

#include <cmath>
#include <limits>
#include <utility>

#include <gtest/gtest.h>

#include "tests/peers/report_page/drawn_chart.hpp"
#include "tests/support/chromium.hpp"
#include "tests/support/written_run.hpp"
#include "troupe/callbacks/report_page/comparison.hpp"
#include "troupe/callbacks/report_page/report_page.hpp"

namespace troupe::internal::test {

/// Two roundings to tenths, and a line between.
inline constexpr double pixel = 0.35;

/// The page *file*, and of its document only what the reader sees.
inline chromium_page open_page(const fs::path& file,
                               const chromium_options& options) {
  auto page = open_in_chromium(file, options);
  page.dom = without_scripts(std::move(page.dom));
  return page;
}

inline chromium_page page_of(const written_run& run) {
  EXPECT_TRUE(report_page::open(run.path()).value().write());
  return open_page(run.path() / "report.html", {});
}

/// What stands below the heading of a section.
inline std::string section_of(const std::string& dom, const std::string& id) {
  auto begin = dom.find("<section id=\"" + id + "\"");
  if (begin == dom.npos)
    return {};
  begin = dom.find("</h2>", begin);
  return dom.substr(begin, dom.find("</section>", begin) - begin);
}

/// The page of a run whose values are known: 20 reports of two ranks, one a
/// second: `loss` falls from 100 to 5 on rank 0 and is 10 higher on rank 1. A
/// checkpoint every 5 reports; attempt 1 begins at report 12.
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

inline void expect_near(const drawn_point& x, const drawn_point& y) {
  EXPECT_NEAR(x.x, y.x, pixel);
  EXPECT_NEAR(x.y, y.y, pixel);
}

} // namespace troupe::internal::test
