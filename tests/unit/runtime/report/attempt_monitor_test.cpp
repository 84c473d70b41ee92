#include "troupe/runtime/report/attempt_monitor.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::internal {

namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;

/// An attempt of two ranks, the second of which has a GPU.
class attempt_monitor_test : public testing::Test {
protected:
  using time_point = attempt_monitor::time_point;

  /// A look finds *rank* as *shown*.
  void show(int rank, rank_snapshot shown, bool examined = false) {
    shown.rank = rank;
    monitor.learn({shown}, examined);
  }

  /// *rank* blocks in its first report.
  void report(int rank) {
    ASSERT_TRUE(calls.add({.rank = rank, .index = 0}, true, t0));
  }

  /// Rank 0 awaits a collective that rank 1, which blocks in a report and is
  /// idle, never calls.
  void block_in_different_calls() {
    show(0, {.called = 1, .awaited = 1});
    show(1, {.vitals = process_vitals{}});
    monitor.look_for_stopped(t0);
    report(1);
  }

  /// When the first of the checks once a second finds a mismatch.
  std::optional<int> seconds_to_mismatch() {
    for (int second = 0; second < 60; ++second)
      if (monitor.mismatch(calls, t0 + second * 1s))
        return second;
    return std::nullopt;
  }

  time_point t0{1000s};
  attempt_monitor monitor{{false, true}, {}};
  rank_meetings calls{2, 0};
};

} // namespace

TEST_F(attempt_monitor_test, keeps_what_one_look_shows_while_it_examines) {
  show(1, {.collectives = 3});
  show(1, {.collectives = 4, .vitals = process_vitals{.io_bytes = 7}}, true);
  EXPECT_EQ(monitor.seen(1).collectives, 3u);
  ASSERT_TRUE(monitor.seen(1).vitals);
  EXPECT_EQ(monitor.seen(1).vitals->io_bytes, 7u);
}

TEST_F(attempt_monitor_test, drops_what_is_shown_of_ranks_that_it_lacks) {
  show(2, {.collectives = 3});
  show(-1, {.collectives = 3});
  EXPECT_EQ(monitor.snapshots().size(), 2u);
  EXPECT_EQ(monitor.seen(0).collectives, 0u);
  EXPECT_EQ(monitor.seen(1).collectives, 0u);
}

TEST_F(attempt_monitor_test, examines_ranks_that_others_wait_for) {
  EXPECT_THAT(monitor.ranks_to_examine(calls), IsEmpty());
  report(0);
  EXPECT_THAT(monitor.ranks_to_examine(calls), ElementsAre(1));
}

TEST_F(attempt_monitor_test, a_rank_with_a_gpu_counts_as_busy) {
  show(0, {.vitals = process_vitals{}});
  show(1, {.vitals = process_vitals{}});
  EXPECT_FALSE(monitor.look_at(0, calls, t0).vitals->busy);
  EXPECT_TRUE(monitor.look_at(1, calls, t0).vitals->busy);
}

TEST_F(attempt_monitor_test, a_rank_in_a_call_does_not_hang) {
  show(0, {.vitals = process_vitals{}});
  report(0);
  EXPECT_FALSE(monitor.look_at(0, calls, t0).vitals);
}

TEST_F(attempt_monitor_test, a_rank_that_connects_to_hosts_does_not_hang) {
  auto connects = [this](bool stopped) {
    show(0, {.at_start = moment{t0},
             .came_to_start = true,
             .vitals = process_vitals{.stopped = stopped}});
    return !monitor.look_at(0, calls, t0).vitals;
  };
  EXPECT_FALSE(connects(false)) << "rank 1 may never come to the group";
  show(1, {.came_to_start = true});
  EXPECT_TRUE(connects(false));
  EXPECT_FALSE(connects(true));
}

TEST_F(attempt_monitor_test, the_end_of_a_loop_leaves_how_its_process_is) {
  show(0, {.is_stopped = true});
  std::vector<rank_snapshot> ranks(1);
  ranks[0].collectives = 5;
  EXPECT_FALSE(monitor.loop_end(0));
  monitor.loop_ended(0, ranks, t0);
  EXPECT_EQ(monitor.loop_end(0), t0);
  EXPECT_EQ(monitor.seen(0).collectives, 5u);
  EXPECT_TRUE(monitor.seen(0).is_stopped);
}

TEST_F(attempt_monitor_test, finds_different_calls_once_a_rank_has_been_idle) {
  monitor = attempt_monitor{{false, false}, {}};
  block_in_different_calls();
  EXPECT_EQ(seconds_to_mismatch(), 5);
}

TEST_F(attempt_monitor_test, a_busy_rank_may_call_a_collective_yet) {
  block_in_different_calls();
  EXPECT_EQ(seconds_to_mismatch(), std::nullopt);
}

TEST_F(attempt_monitor_test, a_stopped_rank_may_call_a_collective_yet) {
  monitor = attempt_monitor{{false, false}, {}};
  block_in_different_calls();
  show(0, {.called = 1, .awaited = 1, .is_stopped = true});
  monitor.look_for_stopped(t0);
  EXPECT_EQ(seconds_to_mismatch(), std::nullopt);
}

TEST_F(attempt_monitor_test, threads_may_be_idle_until_the_limit_on_hangs) {
  monitor = attempt_monitor{{false, false}, {.hang = 20s, .in_process = true}};
  block_in_different_calls();
  EXPECT_EQ(seconds_to_mismatch(), 20);
}

TEST_F(attempt_monitor_test, progress_is_of_another_batch) {
  EXPECT_FALSE(monitor.advance(t0));
  rank_snapshot shown{.pass = {1, 100, 11, {t0}}};
  show(0, shown);
  EXPECT_TRUE(monitor.advance(t0 + 1s));
  EXPECT_EQ(monitor.progress()->batch, 10u);
  EXPECT_FALSE(monitor.advance(t0 + 2s));
  shown.pass.taken = 12;
  show(0, shown);
  EXPECT_TRUE(monitor.advance(t0 + 3s));
}

TEST_F(attempt_monitor_test, a_report_does_not_wait_while_the_driver_stands) {
  monitor.begin(t0);
  report_batch batch;
  batch.wait_s = 30;
  monitor.leave_out_standstill(batch, t0 + 30s, t0 + 1s);
  EXPECT_EQ(batch.wait_s, 30);
  monitor.leave_out_standstill(batch, t0 + 30s, t0 + 30s);
  EXPECT_LT(batch.wait_s, 30);
}

} // namespace troupe::internal
