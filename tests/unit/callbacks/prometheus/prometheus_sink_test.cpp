#include "troupe/callbacks/prometheus/prometheus_sink.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/support/http_get.hpp"
#include "tests/support/sink_records.hpp"
#include "troupe/callbacks/tracking/option_fields.hpp"

namespace troupe::internal {
namespace {

using test::run_in;
using test::sink_records;

class prometheus_sink_test : public testing::Test {
protected:
  void start(prometheus_sink& x) {
    ASSERT_TRUE(x.check(run));
    ASSERT_TRUE(x.start(run, ""));
    auto notes = x.take_notes();
    ASSERT_EQ(notes.size(), 1u);
    said = notes.front();
    auto begin = said.find("//") + 2;
    address = said.substr(begin, said.find('/', begin) - begin);
  }

  /// Of the sink that was started last.
  int port() const { return std::stoi(address.substr(address.find(':') + 1)); }

  std::string page() const {
    auto reply = test::http_get(port(), "/metrics");
    return reply && reply->status == 200 ? reply->body : std::string{};
  }

  sink_records record;
  tracked_run run = run_in("/runs/digits");
  std::string said;
  std::string address;
};

#define EXPECT_LINE(text, line)                                                \
  EXPECT_NE((text).find("\n" line "\n"), std::string::npos) << (text)

TEST(prometheus_tracker_test, lets_the_end_of_a_run_wait_2_s_for_its_port) {
  using std::chrono::seconds;
  EXPECT_EQ(prometheus_tracker()->options().failing_timeout, seconds{2});
  auto longer = prometheus_tracker({}, {.failing_timeout = seconds{9}});
  EXPECT_EQ(longer->options().failing_timeout, seconds{9});
}

TEST_F(prometheus_sink_test, says_where_it_serves) {
  prometheus_sink x{{}};
  start(x);
  EXPECT_EQ(said, "Prometheus finds the run at http://" + address + "/metrics");
  EXPECT_TRUE(address.starts_with("127.0.0.1:"));
  EXPECT_NE(page(), "");
}

TEST_F(prometheus_sink_test, shows_reports_of_all_ranks) {
  prometheus_sink x{{}};
  start(x);
  auto first = record.report(
    6, {{{"loss", 1.0}, {"val/acc", 0.5}}, {{"loss", 3.0}, {"val/acc", 0.5}}});
  auto& row = std::get<journaled_batch>(first.content);
  row.step_s = {0.25, 0.75};
  row.wait_s = 0.5;
  row.checkpoint = "checkpoint_000001";
  row.checkpoint_s = 2;
  std::vector<tracker_record> records{record(attempt_record{6}, 1), first};
  ASSERT_TRUE(x.log(records));
  auto text = page();
  EXPECT_LINE(text, "troupe_reports_total{run=\"digits\"} 1");
  EXPECT_LINE(text, "troupe_attempts_total{run=\"digits\"} 1");
  EXPECT_LINE(text, "troupe_step{run=\"digits\"} 6");
  EXPECT_LINE(text, "troupe_report_wait_seconds_sum{run=\"digits\"} 0.5");
  EXPECT_LINE(text, "troupe_checkpoint_seconds_sum{run=\"digits\"} 2");
  EXPECT_LINE(text, "troupe_step_seconds{run=\"digits\",rank=\"0\"} 0.25");
  EXPECT_LINE(text, "troupe_step_seconds{run=\"digits\",rank=\"1\"} 0.75");
  EXPECT_LINE(text, "troupe_metric{run=\"digits\",name=\"loss\"} 2");
  EXPECT_LINE(text, "troupe_metric{run=\"digits\",name=\"val_acc\"} 0.5");
}

TEST_F(prometheus_sink_test, shows_the_current_status) {
  run_status now;
  now.state = run_state::running;
  now.world_size = 2;
  now.callback_queue = 3;
  run.status = [&] { return now; };
  prometheus_sink x{{}};
  start(x);
  auto text = page();
  EXPECT_LINE(text, "troupe_run_state{run=\"digits\",state=\"running\"} 1");
  EXPECT_LINE(text, "troupe_run_state{run=\"digits\",state=\"finished\"} 0");
  EXPECT_LINE(text, "troupe_workers{run=\"digits\"} 2");
  EXPECT_LINE(text, "troupe_callback_queue{run=\"digits\"} 3");
  now.world_size = 4;
  EXPECT_LINE(page(), "troupe_workers{run=\"digits\"} 4");
}

TEST_F(prometheus_sink_test, does_not_query_a_run_that_has_ended) {
  auto asked = 0;
  run.status = [&] { return ++asked, run_status{}; };
  prometheus_sink x{{}};
  start(x);
  ASSERT_TRUE(x.finish(run_status_kind::errored, test::record_time(1)));
  auto before = asked;
  EXPECT_LINE(page(), "troupe_run_state{run=\"digits\",state=\"errored\"} 1");
  EXPECT_EQ(asked, before);
}

TEST_F(prometheus_sink_test, removes_the_gauges_of_a_finished_run) {
  prometheus_options options;
  options.grace = std::chrono::seconds{0};
  prometheus_sink x{options};
  start(x);
  auto row = record.report(0, {{{"loss", 1.0}}});
  ASSERT_TRUE(x.log({&row, 1}));
  EXPECT_NE(page().find("troupe_metric"), std::string::npos);
  ASSERT_TRUE(x.finish(run_status_kind::finished, test::record_time(1)));
  auto text = page();
  EXPECT_EQ(text.find("troupe_metric"), std::string::npos);
  EXPECT_LINE(text, "troupe_reports_total{run=\"digits\"} 1");
  ASSERT_TRUE(x.start(run, "")); // resumed
  EXPECT_NE(page().find("troupe_metric"), std::string::npos);
}

TEST_F(prometheus_sink_test, writes_each_kind_of_value) {
  prometheus_sink x{{}};
  start(x);
  auto row = record.report(0, {{{"flag", true},
                                {"inf", -HUGE_VAL},
                                {"nan", std::nan("")},
                                {"text", "dropped"},
                                {"whole", 3}}});
  ASSERT_TRUE(x.log({&row, 1}));
  auto text = page();
  EXPECT_LINE(text, "troupe_metric{run=\"digits\",name=\"flag\"} 1");
  EXPECT_LINE(text, "troupe_metric{run=\"digits\",name=\"inf\"} -Inf");
  EXPECT_LINE(text, "troupe_metric{run=\"digits\",name=\"nan\"} NaN");
  EXPECT_LINE(text, "troupe_metric{run=\"digits\",name=\"whole\"} 3");
  EXPECT_EQ(text.find("dropped"), text.npos);
  EXPECT_EQ(text.find("name=\"text\""), text.npos);
}

TEST_F(prometheus_sink_test, limits_the_number_of_metrics_and_warns_once) {
  prometheus_options options;
  options.max_metrics = 2;
  prometheus_sink x{options};
  start(x);
  for (auto i : {0, 1}) {
    auto row = record(logged_metrics{i, {{"a", 1}, {"b", 2}, {"c", 3}}});
    ASSERT_TRUE(x.log({&row, 1}));
  }
  auto notes = x.take_notes();
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes.front().find("only the first 2 metrics"), std::string::npos);
  auto text = page();
  EXPECT_LINE(text, "troupe_metric{run=\"digits\",name=\"b\"} 2");
  EXPECT_EQ(text.find("name=\"c\""), text.npos);
}

TEST_F(prometheus_sink_test, waits_for_a_port_that_is_taken) {
  prometheus_sink x{{}};
  start(x);
  prometheus_options options;
  options.port = static_cast<std::uint16_t>(port());
  prometheus_sink y{options};
  auto failed = y.start(run, "");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().what, sink_failure::kind::transient);
  EXPECT_NE(failed.error().reason.message.find(address), std::string::npos);
}

TEST_F(prometheus_sink_test, refuses_an_invalid_address) {
  prometheus_options options;
  options.address = "everywhere";
  auto refused = prometheus_sink{options}.check(run);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("everywhere"), std::string::npos);
}

TEST_F(prometheus_sink_test, can_be_rebuilt_from_its_options) {
  prometheus_options options;
  options.port = 1234;
  options.ranks = rank_values::each;
  prometheus_sink x{options};
  EXPECT_EQ(sink_from_json<prometheus_sink>(x.options())->options(),
            x.options());
  EXPECT_NE(x.options(), prometheus_sink{{}}.options());
}

} // namespace
} // namespace troupe::internal
