#include "troupe/runtime/report/call_batch.hpp"

#include <gtest/gtest.h>

namespace troupe::internal {
namespace {

/// Three ranks of one host, all up, whose first report is 7.
class call_batch_test : public testing::Test {
protected:
  call_batch_test() {
    for (int rank = 0; rank < 3; ++rank)
      calls.came_up(rank);
  }

  static constexpr auto barrier = meeting_kind::barrier;

  call_batch calls{3, 7, true, 2};
};

TEST_F(call_batch_test,
       passes_a_report_on_once_all_ranks_have_sent_it) { // CB-1
  for (std::uint64_t index = 7; index < 10; ++index) {
    EXPECT_FALSE(calls.report(1, index, true));
    EXPECT_FALSE(calls.report(0, index, true));
    EXPECT_TRUE(calls.report(2, index, true));
    calls.answered(index);
  }
}

TEST_F(call_batch_test, passes_each_report_on_of_ranks_that_run_ahead) { // CB-1
  for (int rank : {0, 1})
    for (std::uint64_t index = 7; index < 9; ++index)
      EXPECT_FALSE(calls.report(rank, index, false));
  EXPECT_TRUE(calls.report(2, 7, false));
  EXPECT_TRUE(calls.report(2, 8, false));
  EXPECT_FALSE(calls.blocks(2));
}

TEST_F(call_batch_test, passes_on_what_all_ranks_wait_for) { // CB-2
  EXPECT_FALSE(calls.arrive(0, 0, barrier));
  EXPECT_FALSE(calls.arrive(1, 0, barrier));
  EXPECT_TRUE(calls.arrive(2, 0, barrier));
  EXPECT_TRUE(calls.blocks(0));
  calls.released();
  EXPECT_FALSE(calls.blocks(0));
  EXPECT_FALSE(calls.arrive(1, 1, barrier));
}

TEST_F(call_batch_test, does_not_wait_for_ranks_whose_loops_have_ended) {
  calls.loop_ended(1);
  EXPECT_FALSE(calls.report(0, 7, false));
  calls.loop_ended(2);
  EXPECT_TRUE(calls.report(0, 8, false));
}

TEST_F(call_batch_test,
       passes_on_what_waits_for_a_loop_that_has_ended) { // CB-6
  calls.loop_ended(0);
  EXPECT_FALSE(calls.report(1, 7, false)) << "it does not wait";
  EXPECT_TRUE(calls.await_reports(1));
  calls.answered(7);
  EXPECT_TRUE(calls.arrive(2, 0, barrier));
}

TEST_F(call_batch_test, passes_on_calls_that_may_never_meet) { // CB-3
  EXPECT_FALSE(calls.report(0, 7, true));
  EXPECT_TRUE(calls.arrive(1, 0, barrier));
  calls.answered(7);
  EXPECT_TRUE(calls.arrive(2, 0, meeting_kind::broadcast));
}

TEST_F(call_batch_test, a_report_that_does_not_wait_may_meet_a_barrier) {
  EXPECT_FALSE(calls.arrive(1, 0, barrier));
  EXPECT_FALSE(calls.report(0, 7, false));
  EXPECT_TRUE(calls.await_reports(0)); // CB-3
}

TEST_F(call_batch_test, a_rank_blocks_when_it_is_too_far_ahead) {
  EXPECT_FALSE(calls.report(0, 7, false));
  EXPECT_FALSE(calls.report(0, 8, false));
  EXPECT_FALSE(calls.blocks(0));
  EXPECT_FALSE(calls.report(0, 9, false));
  EXPECT_TRUE(calls.blocks(0));
  calls.answered(7);
  EXPECT_FALSE(calls.blocks(0));
  EXPECT_FALSE(calls.await_reports(0));
  EXPECT_TRUE(calls.blocks(0));
  calls.answered(9);
  EXPECT_FALSE(calls.await_reports(0));
  EXPECT_FALSE(calls.blocks(0)) << "all is answered";
}

TEST_F(call_batch_test, passes_on_what_the_group_refuses) { // CB-4
  EXPECT_TRUE(calls.report(0, 8, true));
  EXPECT_TRUE(calls.arrive(1, 3, barrier));
  EXPECT_FALSE(calls.arrive(1, 0, barrier));
  EXPECT_TRUE(calls.arrive(1, 0, barrier));
}

TEST_F(call_batch_test, holds_nothing_before_all_ranks_are_up) { // CB-5
  call_batch starting{2, 0};
  starting.came_up(0);
  EXPECT_TRUE(starting.report(0, 0, true));
  starting.came_up(1);
  EXPECT_TRUE(starting.report(1, 0, true));
  starting.answered(0);
  EXPECT_FALSE(starting.report(1, 1, true));
}

TEST_F(call_batch_test, may_hold_nothing_at_all) { // CB-5
  call_batch all{1, 0, false};
  all.came_up(0);
  EXPECT_TRUE(all.report(0, 0, false));
  EXPECT_TRUE(all.arrive(0, 0, barrier));
}

} // namespace
} // namespace troupe::internal
