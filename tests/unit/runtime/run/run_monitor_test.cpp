#include "troupe/runtime/run/run_monitor.hpp"

#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::internal {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class run_monitor_test : public testing::Test {
protected:
  run_monitor_test() {
    monitor.on_change([this](run_state) { ++changes; });
  }

  static kept_result outcome(std::uint64_t attempts) {
    kept_result x;
    x.head.status = run_status_kind::finished;
    x.head.attempts = attempts;
    return x;
  }

  run_monitor monitor;
  int changes = 0;
};

TEST_F(run_monitor_test, shows_the_last_status) {
  EXPECT_EQ(monitor.status(), run_status{});
  monitor.show({.state = run_state::running, .reports = 3}, {{"loss", 0.5}});
  EXPECT_EQ(monitor.status().reports, 3u);
  EXPECT_EQ(monitor.status().last_metrics, (metrics{{"loss", 0.5}}));
}

TEST_F(run_monitor_test, calls_for_a_new_state_but_not_for_every_report) {
  monitor.show({.state = run_state::running, .reports = 1});
  EXPECT_EQ(changes, 1);
  monitor.show({.state = run_state::running, .reports = 2});
  EXPECT_EQ(changes, 1);
  monitor.show({.state = run_state::finished, .reports = 2});
  EXPECT_EQ(changes, 2);
}

TEST_F(run_monitor_test, gives_every_note_once_in_order) {
  monitor.note("first");
  monitor.note("second");
  EXPECT_EQ(changes, 2);
  EXPECT_THAT(monitor.take_notes(), ElementsAre("first", "second"));
  EXPECT_THAT(monitor.take_notes(), IsEmpty());
}

TEST_F(run_monitor_test, keeps_the_newest_notes_until_they_are_taken) {
  for (std::size_t i = 0; i < run_monitor::max_notes + 3; ++i)
    monitor.note(std::to_string(i));
  auto notes = monitor.take_notes();
  ASSERT_EQ(notes.size(), run_monitor::max_notes + 1);
  EXPECT_EQ(notes[0], "3 older notes were dropped");
  EXPECT_EQ(notes[1], "3");
  EXPECT_EQ(notes.back(), std::to_string(run_monitor::max_notes + 2));
  monitor.note("next");
  EXPECT_THAT(monitor.take_notes(), ElementsAre("next"));
}

TEST_F(run_monitor_test, has_no_outcome_before_the_run_is_over) {
  EXPECT_FALSE(monitor.is_over());
  EXPECT_FALSE(monitor.has_result());
  monitor.prepare(outcome(1));
  EXPECT_TRUE(monitor.has_result());
  EXPECT_FALSE(monitor.is_over());
  EXPECT_EQ(monitor.prepared().head.attempts, 1u);
  monitor.prepare(outcome(2));
  monitor.finish();
  EXPECT_EQ(changes, 1);
  ASSERT_TRUE(monitor.is_over());
  monitor.prepare(outcome(3));
  EXPECT_EQ(monitor.wait().head.attempts, 2u);
  EXPECT_EQ(monitor.wait().head.status, run_status_kind::finished);
}

TEST_F(run_monitor_test, wakes_all_that_wait_for_the_end) {
  auto wait = [this] { return monitor.wait().head.attempts; };
  auto one = std::async(std::launch::async, wait);
  auto other = std::async(std::launch::async, wait);
  monitor.prepare(outcome(7));
  monitor.finish();
  EXPECT_EQ(one.get(), 7u);
  EXPECT_EQ(other.get(), 7u);
}

TEST_F(run_monitor_test, needs_no_listener) {
  monitor.on_change({});
  monitor.note("without a listener");
  EXPECT_EQ(changes, 0);
  EXPECT_THAT(monitor.take_notes(), ElementsAre("without a listener"));
}

} // namespace
} // namespace troupe::internal
