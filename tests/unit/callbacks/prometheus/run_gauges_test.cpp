#include "troupe/callbacks/prometheus/run_gauges.hpp"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace troupe::internal {
namespace {

TEST(prometheus_text_test, writes_families_and_samples) {
  prometheus_text x;
  x.family("troupe_reports_total", "counter", "Reports.");
  x.sample({{"run", "a"}}, std::uint64_t{9007199254740993});
  x.family("troupe_up", "gauge", "Up.");
  x.sample({}, 0.1);
  EXPECT_EQ(x.text(), "# HELP troupe_reports_total Reports.\n"
                      "# TYPE troupe_reports_total counter\n"
                      "troupe_reports_total{run=\"a\"} 9007199254740993\n"
                      "# HELP troupe_up Up.\n"
                      "# TYPE troupe_up gauge\n"
                      "troupe_up 0.1\n");
}

TEST(prometheus_text_test, spells_non_finite_values) {
  prometheus_text x;
  x.family("a", "gauge", "b");
  x.sample({}, std::nan(""));
  x.sample({}, HUGE_VAL);
  x.sample({}, -HUGE_VAL);
  EXPECT_TRUE(x.text().ends_with("a NaN\na +Inf\na -Inf\n"));
}

TEST(prometheus_text_test, escapes_labels_and_help) {
  prometheus_text x;
  x.family("a", "gauge", "one\\two\n\"three\"");
  x.sample({{"l", "q\" b\\ n\n u\xff"}, {"m", ""}}, 1.0);
  EXPECT_EQ(x.text(), "# HELP a one\\\\two\\n\"three\"\n"
                      "# TYPE a gauge\n"
                      "a{l=\"q\\\" b\\\\ n\\n u\xef\xbf\xbd\",m=\"\"} 1\n");
}

TEST(prometheus_text_test, counts_durations_in_cumulative_buckets) {
  prometheus_histogram h;
  for (auto seconds : {0.0005, 0.02, 0.02, 5.0, 5000.0})
    h.add(seconds);
  prometheus_text x;
  x.family("w", "histogram", "Waits.");
  h.write(x, {{"run", "r"}});
  auto& text = x.text();
  for (auto line :
       {"w_bucket{run=\"r\",le=\"0.001\"} 1\n",
        "w_bucket{run=\"r\",le=\"0.01\"} 1\n",
        "w_bucket{run=\"r\",le=\"0.03\"} 3\n",
        "w_bucket{run=\"r\",le=\"10\"} 4\n",
        "w_bucket{run=\"r\",le=\"600\"} 4\n",
        "w_bucket{run=\"r\",le=\"+Inf\"} 5\n", "w_count{run=\"r\"} 5\n"})
    EXPECT_NE(text.find(line), text.npos) << line << text;
}

} // namespace
} // namespace troupe::internal
