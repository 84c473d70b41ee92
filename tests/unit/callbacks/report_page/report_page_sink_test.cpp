#include "troupe/callbacks/report_page/report_page_sink.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/written_run.hpp"

namespace troupe::internal::test {

namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

class report_page_sink_test : public ::testing::Test {
protected:
  report_page_sink_test() {
    tracked_.path = run_.path();
    EXPECT_TRUE(sink_.start(tracked_, {}));
  }

  static tracker_record report(const std::string& checkpoint = {}) {
    journaled_batch row;
    row.checkpoint = checkpoint;
    return {.content = row};
  }

  bool takes(const tracker_record& x) { return sink_.log({&x, 1}).has_value(); }

  bool is_written() const { return fs::exists(page()); }
  fs::path page() const { return run_.path() / "report.html"; }

  std::chrono::steady_clock::time_point now_;
  /// How far the clock goes at each look.
  std::chrono::milliseconds tick_{0};
  written_run run_;
  tracked_run tracked_;
  report_page_sink sink_{[this] { return now_ += tick_; }};
};

} // namespace

TEST_F(report_page_sink_test, a_checkpoint_an_attempt_and_the_end_write_it) {
  EXPECT_TRUE(takes(report()));
  EXPECT_FALSE(is_written());
  EXPECT_TRUE(takes(report("checkpoint_0")));
  EXPECT_TRUE(is_written());
  fs::remove(page());
  EXPECT_TRUE(takes({.content = attempt_record{}}));
  EXPECT_TRUE(is_written());
  fs::remove(page());
  EXPECT_TRUE(sink_.finish(run_status_kind::finished, {}));
  EXPECT_TRUE(is_written());
}

TEST_F(report_page_sink_test, pages_of_checkpoints_take_a_twentieth_of_time) {
  tick_ = 100ms; // so long takes a page
  EXPECT_TRUE(takes(report("checkpoint_0")));
  fs::remove(page());
  tick_ = 0ms;
  now_ += 1899ms;
  EXPECT_TRUE(takes(report("checkpoint_1")));
  EXPECT_FALSE(is_written());
  now_ += 1ms;
  EXPECT_TRUE(takes(report()));
  EXPECT_TRUE(is_written()) << "it was put off, not dropped";
}

TEST_F(report_page_sink_test, a_page_that_cannot_be_written_is_tried_again) {
  fs::create_directories(page() / "in the way");
  tracker_record x = report("checkpoint_0");
  auto failed = sink_.log({&x, 1});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().what, sink_failure::kind::transient);
  EXPECT_THAT(failed.error().reason.message, HasSubstr("report.html"));
  EXPECT_EQ(failed.error().accepted, 0u);
  fs::remove_all(page());
  EXPECT_TRUE(takes(x));
  EXPECT_TRUE(fs::is_regular_file(page()));
}

TEST_F(report_page_sink_test, a_run_that_has_gone_is_a_transient_failure) {
  tracked_.path = run_.path() / "gone";
  auto failed = sink_.start(tracked_, {});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().what, sink_failure::kind::transient);
}

TEST_F(report_page_sink_test, it_gives_up_when_no_one_waits) {
  std::stop_source stop;
  tracked_.cancelled = stop.get_token();
  ASSERT_TRUE(sink_.start(tracked_, {}));
  stop.request_stop();
  EXPECT_FALSE(sink_.finish(run_status_kind::finished, {}));
  EXPECT_FALSE(is_written());
}

TEST_F(report_page_sink_test, another_process_builds_an_equal_one) {
  auto again = make_report_page_sink(sink_.options());
  EXPECT_EQ(again->name(), sink_.name());
  EXPECT_EQ(again->options(), "{}");
  EXPECT_EQ(again->state(), "");
}

} // namespace troupe::internal::test
