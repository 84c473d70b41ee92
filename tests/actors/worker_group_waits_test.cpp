// The worker group while ranks wait for each other, and when one of them hangs.

#include <csignal>

#include "tests/actors/worker_group_fixture.hpp"

namespace troupe::internal::test {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(worker_group_test, a_report_that_waits_too_long_names_who_is_missing) {
  plan.world = {3, 3};
  plan.report_timeout = ms{400};
  start_all();
  ranks.report(1, 10);
  system.pass(ms{399});
  EXPECT_TRUE(ranks.launcher->killed.empty());
  system.pass(ms{1});
  for (int rank = 0; rank < 3; ++rank)
    ranks.kill(rank, SIGKILL);
  for (int rank : {0, 2}) {
    EXPECT_EQ(failure_of(rank).kind, kind::timeout);
    EXPECT_THAT(failure_of(rank).what, HasSubstr("ranks 0, 2 are missing"));
  }
  EXPECT_EQ(record->failed[0].ranks.size(), 2u);
}

TEST_F(worker_group_test, the_limit_starts_again_with_each_wait) {
  plan.report_timeout = ms{400};
  start_all();
  ranks.report(0, 10);
  system.pass(ms{300});
  ranks.report(1, 10);
  answer_batch();
  ranks.report(0, 11);
  system.pass(ms{399});
  EXPECT_TRUE(ranks.launcher->killed.empty());
  system.pass(ms{1});
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(0, 1));
}

TEST_F(worker_group_test, a_barrier_that_waits_too_long_names_who_is_missing) {
  plan.report_timeout = ms{400};
  start_all();
  auto waits = system.ask<barrier_released>(ranks.agent, join_barrier{3, 1, 0});
  system.pass(ms{400});
  EXPECT_TRUE(waits->failure);
  ranks.kill(0, SIGKILL);
  ranks.kill(1, SIGKILL);
  EXPECT_THAT(failure_of(0).what, HasSubstr("barrier 0: rank 0 is missing"));
}

TEST_F(worker_group_test, names_a_rank_that_others_wait_for) {
  start_all();
  ranks.launcher->lives[1].busy = true;
  auto waits = ranks.report(0, 10);
  pass_seconds(9);
  EXPECT_TRUE(record->warnings.empty());
  pass_seconds(1);
  ASSERT_EQ(record->warnings.size(), 1u);
  EXPECT_EQ(record->warnings[0].attempt, 3u);
  EXPECT_TRUE(record->warnings[0].waits);
  EXPECT_EQ(record->warnings[0].text,
            "report 10: rank 1 is missing for 10 s, rank 0 waits; rank 1 is in "
            "its train loop, at work; the stacks of its threads are in "
            "logs/rank_1.stacks");
  EXPECT_THAT(ranks.launcher->asked, ElementsAre(1));
  pass_seconds(30);
  EXPECT_EQ(record->warnings.size(), 2u);
  EXPECT_TRUE(waits->pending());
  ranks.report(1, 10);
  answer_batch();
  pass_seconds(1);
  ASSERT_EQ(record->warnings.size(), 3u);
  EXPECT_FALSE(record->warnings[2].waits);
}

TEST_F(worker_group_test, a_report_waits_for_no_rank_while_the_driver_stands) {
  start_all();
  ranks.report(0, 10);
  real += std::chrono::seconds{41};
  pass_seconds(3); // The first of them counts as the end of a standstill.
  ranks.report(1, 10);
  ASSERT_EQ(record->batches.size(), 1u);
  EXPECT_NEAR(record->batches[0].batch.wait_s, 2, 0.01);
  answer_batch();
}

TEST_F(worker_group_test, names_where_a_rank_is_that_others_wait_for) {
  start_all();
  activity(1).in_data_loader = now();
  ranks.report(0, 10);
  pass_seconds(10);
  ASSERT_EQ(record->warnings.size(), 1u);
  EXPECT_THAT(record->warnings[0].text,
              HasSubstr("rank 1 is in its data loader for 10 s"));
  EXPECT_EQ(place_of(0), "in report 10");
  EXPECT_EQ(place_of(1), "in its data loader for 10 s");
  activity(1).in_data_loader = 0;
  activity(1).at_device = now();
  pass_seconds(3);
  EXPECT_EQ(place_of(1), "waiting for its GPU for 3 s");
}

TEST_F(worker_group_test, names_a_rank_that_is_missing_in_a_collective) {
  plan.world = {3, 3};
  start_all();
  for (int rank : {0, 2}) {
    auto& x = activity(rank);
    x.enter_collective();
    x.in_collective = now();
  }
  pass_seconds(9);
  EXPECT_TRUE(record->warnings.empty());
  pass_seconds(1);
  ASSERT_EQ(record->warnings.size(), 1u);
  EXPECT_THAT(
    record->warnings[0].text,
    HasSubstr("collective 1: rank 1 is missing for 10 s, ranks 0, 2 wait"));
  activity(1).enter_collective();
  pass_seconds(1);
  EXPECT_EQ(record->warnings.size(), 2u);
  EXPECT_FALSE(record->warnings[1].waits);
}

TEST_F(worker_group_test, a_report_and_a_collective_end_the_attempt) {
  start_all();
  auto& x = activity(0);
  x.enter_collective();
  x.called = 1;
  auto waits = ranks.report(1, 10);
  pass_seconds(2);
  EXPECT_TRUE(waits->pending()) << "the loop of rank 0 may come";
  x.awaited = 1;
  ranks.launcher->lives[1];
  pass_seconds(5);
  EXPECT_TRUE(waits->pending()) << "another thread of rank 1 may come";
  pass_seconds(1);
  for (int rank : {0, 1})
    ranks.kill(rank, SIGKILL);
  for (int rank : {0, 1}) {
    EXPECT_EQ(failure_of(rank).kind, kind::misuse);
    EXPECT_EQ(failure_of(rank).what, "the ranks are in different calls: rank 0 "
                                     "in collective 1, rank 1 in report 10");
  }
}

/// Rank 0 awaits its first collective, while the loop of rank 1 reports.
class other_thread_test : public worker_group_test {
protected:
  void start_waits() {
    start_all();
    activity(0).called = activity(0).awaited = 1;
    waits = ranks.report(1, 10);
  }

  std::shared_ptr<answer<report_committed>> waits;
};

TEST_F(other_thread_test, may_call_what_others_await_as_long_as_it_works) {
  start_waits();
  work(1);
  EXPECT_TRUE(waits->pending());
  activity(1).uncounted = 1; // It has come.
  ranks.launcher->lives[1] = {};
  pass_seconds(600);
  EXPECT_TRUE(waits->pending());
}

TEST_F(other_thread_test, may_come_after_a_signal_stopped_its_process) {
  plan.hang_timeout = ms{60'000};
  start_waits();
  activity(0).enter_collective();
  ranks.launcher->lives[0];
  ranks.launcher->lives[1].stopped = true;
  pass_seconds(30);
  ranks.launcher->lives[1].stopped = false;
  pass_seconds(4);
  EXPECT_TRUE(waits->pending());
  ranks.launcher->lives[1].stopped = true;
  pass_seconds(58);
  EXPECT_TRUE(waits->pending());
  pass_seconds(5);
  for (int rank : {0, 1})
    ranks.kill(rank, SIGKILL);
  EXPECT_EQ(record->failed[0].ranks.size(), 1u) << "rank 0 only waits for it";
  EXPECT_EQ(failure_of(1).kind, kind::timeout);
}

TEST_F(other_thread_test, may_work_unseen) {
  plan.gpus = {{0}, {1}};
  start_waits();
  pass_seconds(600);
  EXPECT_TRUE(waits->pending()) << "no vitals";
  ranks.launcher->lives[1];
  pass_seconds(600);
  EXPECT_TRUE(waits->pending()) << "its GPU may work";
}

TEST_F(other_thread_test, is_not_expected_again_once_the_rank_was_idle) {
  plan.hang_timeout = ms{3'200};
  start_waits();
  ranks.launcher->lives[1];
  for (int i = 0; i < 18; ++i) // The group looks at each 16th part.
    system.pass(ms{200});
  EXPECT_FALSE(waits->pending());
}

TEST_F(other_thread_test, has_the_limit_of_hangs_where_ranks_are_threads) {
  plan.in_process = true;
  plan.hang_timeout = ms{60'000};
  start_waits();
  pass_seconds(59);
  EXPECT_TRUE(waits->pending());
  pass_seconds(3);
  EXPECT_FALSE(waits->pending());
}

TEST_F(worker_group_test, a_collective_that_failed_is_waited_in_no_longer) {
  start_all();
  auto& x = activity(0);
  x.called = x.awaited = 1;
  x.fail_collective(collective_failure::own);
  auto waits = ranks.report(1, 10);
  pass_seconds(9);
  EXPECT_TRUE(waits->pending());
  ranks.report(0, 10);
  answer_batch();
  EXPECT_FALSE(waits->pending());
}

// As in an all-reduce over NCCL, before a report.
TEST_F(worker_group_test, names_a_rank_that_the_gpus_of_others_wait_for) {
  plan.world = {3, 3};
  plan.gpus = {{0}, {1}, {2}};
  start_all();
  for (int rank : {0, 2})
    activity(rank).at_device = now();
  pass_seconds(9);
  EXPECT_TRUE(record->warnings.empty());
  pass_seconds(1);
  ASSERT_EQ(record->warnings.size(), 1u);
  EXPECT_THAT(record->warnings[0].text,
              HasSubstr("work on the GPUs: rank 1 is missing for 10 s, ranks 0,"
                        " 2 wait; rank 1 is in its train loop"));
  activity(2).at_device = 0;
  ranks.report(2, 10);
  pass_seconds(10);
  EXPECT_THAT(record->warnings.back().text,
              HasSubstr("report 10: rank 1 is missing for 10 s, rank 2 waits"));
  activity(1).at_device = now();
  pass_seconds(1);
  EXPECT_EQ(place_of(1), "waiting for its GPU for 1 s");
}

TEST_F(worker_group_test, names_ranks_whose_gpus_all_hang) {
  plan.gpus = {{0}, {1}};
  start_all();
  for (int rank : {0, 1})
    activity(rank).at_device = now();
  pass_seconds(10);
  ASSERT_EQ(record->warnings.size(), 1u);
  EXPECT_THAT(record->warnings[0].text,
              HasSubstr("work on the GPUs: all ranks are in it for 10 s"));
}

TEST_F(worker_group_test, the_last_rank_waits_for_its_gpu_alone) {
  plan.gpus = {{0}, {1}};
  start_all();
  ranks.finish(0);
  activity(1).at_device = now();
  pass_seconds(10);
  ASSERT_EQ(record->warnings.size(), 1u);
  EXPECT_THAT(record->warnings[0].text,
              HasSubstr("the end of the run: rank 1 is missing for 10 s"));
}

TEST_F(worker_group_test, ends_a_rank_that_shows_no_sign_of_life) {
  plan.hang_timeout = ms{60'000};
  plan.world = {3, 3};
  plan.gpus = {{}, {}, {}};
  start_all();
  ranks.launcher->lives[1];
  ranks.launcher->lives[2].busy = true;
  ranks.report(0, 10);
  pass_seconds(59);
  EXPECT_TRUE(ranks.launcher->killed.empty());
  pass_seconds(3);
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(0, 1, 2));
  for (int rank : {0, 1, 2})
    ranks.kill(rank, SIGKILL);
  EXPECT_EQ(record->failed[0].ranks.size(), 1u) << "rank 2 is at work";
  EXPECT_EQ(failure_of(1).kind, kind::timeout);
  EXPECT_THAT(failure_of(1).what, HasSubstr("without CPU time or I/O for 60"));
}

TEST_F(worker_group_test, never_ends_a_rank_that_works) {
  plan.hang_timeout = ms{60'000};
  start_all();
  ranks.report(0, 10);
  work(1);
  EXPECT_TRUE(ranks.launcher->killed.empty());
}

TEST_F(worker_group_test, ends_a_rank_that_hangs_as_the_last_one) {
  plan.hang_timeout = ms{60'000};
  start_all();
  ranks.launcher->lives[1];
  pass_seconds(600); // no one waits for it
  ranks.finish(0);
  pass_seconds(59);
  EXPECT_TRUE(ranks.launcher->killed.empty());
  pass_seconds(3);
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(1));
  ranks.kill(1, SIGKILL);
  EXPECT_EQ(failure_of(1).kind, kind::timeout);
  EXPECT_THAT(failure_of(1).what,
              HasSubstr("the end of the run: rank 1 is missing"));
}

TEST_F(worker_group_test, the_last_rank_may_work_for_as_long_as_it_takes) {
  plan.hang_timeout = ms{60'000};
  plan.report_timeout = ms{1'000};
  start_all();
  ranks.finish(0);
  work(1);
  EXPECT_TRUE(ranks.launcher->killed.empty());
}

TEST_F(worker_group_test, the_last_rank_may_wait_for_a_slow_commit) {
  plan.hang_timeout = ms{60'000};
  start_all();
  ranks.launcher->lives[1];
  system.ask<report_committed>(ranks.agent,
                               report{3, {.rank = 0, .index = 10}, false});
  ranks.finish(0);
  ranks.report(1, 10);
  pass_seconds(600);
  EXPECT_TRUE(ranks.launcher->killed.empty());
}

TEST_F(worker_group_test, ends_a_stopped_rank_that_no_rank_waits_for) {
  plan.hang_timeout = ms{60'000};
  plan.world = {1, 1};
  plan.gpus = {{0}};
  start_all();
  ranks.launcher->lives[0].stopped = true;
  pass_seconds(30);
  ranks.launcher->lives[0].stopped = false;
  pass_seconds(600);
  EXPECT_TRUE(ranks.launcher->killed.empty());
  ranks.launcher->lives[0].stopped = true;
  pass_seconds(63);
  ranks.kill(0, SIGKILL);
  EXPECT_EQ(failure_of(0).kind, kind::timeout);
}

TEST_F(worker_group_test, a_rank_with_a_gpu_may_wait_for_it_without_cpu_time) {
  plan.hang_timeout = ms{60'000};
  plan.gpus = {{0}, {1}};
  start_all();
  ranks.report(0, 10);
  ranks.launcher->lives[1];
  pass_seconds(600);
  EXPECT_TRUE(ranks.launcher->killed.empty());
  ranks.launcher->lives[1].stopped = true;
  pass_seconds(62);
  EXPECT_FALSE(ranks.launcher->killed.empty());
}

TEST_F(worker_group_test, a_rank_that_waits_at_the_store_is_not_to_blame) {
  plan.hang_timeout = ms{60'000};
  plan.world = {3, 3};
  start_all();
  activity(1).at_store = now();
  ranks.launcher->lives[1];
  ranks.launcher->lives[2].busy = true;
  ranks.report(0, 10);
  pass_seconds(600);
  EXPECT_TRUE(ranks.launcher->killed.empty());
  EXPECT_THAT(record->warnings.at(0).text,
              HasSubstr("report 10: rank 2 is missing"));
}

TEST_F(worker_group_test, ends_a_rank_that_never_comes_to_its_group) {
  plan.hang_timeout = ms{60'000};
  plan.world = {4, 4};
  start_all();
  activity(0).at_start = activity(0).at_store = now();
  activity(0).came_to_start = 1;
  activity(2).asks_driver = now();
  activity(3).came_to_start = 1; // It has seen that all are there.
  for (int rank = 0; rank < 4; ++rank)
    ranks.launcher->lives[rank];
  pass_seconds(9);
  EXPECT_TRUE(record->warnings.empty());
  pass_seconds(1);
  ASSERT_EQ(record->warnings.size(), 1u);
  EXPECT_THAT(record->warnings[0].text,
              HasSubstr("the start of the group: rank 1 is missing for 10 s, "
                        "rank 0 waits; rank 1 is in its train loop"));
  EXPECT_EQ(place_of(0), "at the start of the group for 10 s");
  pass_seconds(52);
  for (int rank = 0; rank < 4; ++rank)
    ranks.kill(rank, SIGKILL);
  EXPECT_EQ(failure_of(1).kind, kind::timeout);
  EXPECT_EQ(record->failed[0].ranks.size(), 1u);
}

// The other rank waits in a report, and never comes there.
TEST_F(worker_group_test,
       ends_a_rank_that_waits_alone_at_the_start_of_a_group) {
  plan.hang_timeout = ms{60'000};
  start_all();
  activity(0).at_start = activity(0).at_store = now();
  activity(0).came_to_start = 1;
  for (int rank = 0; rank < 2; ++rank)
    ranks.launcher->lives[rank];
  ranks.report(1, 10);
  pass_seconds(63);
  EXPECT_TRUE(ranks.asked_to_end(1));
  for (int rank = 0; rank < 2; ++rank)
    ranks.kill(rank, SIGKILL);
  EXPECT_EQ(failure_of(0).kind, kind::timeout);
}

// Leaders of two hosts that cannot reach each other; the other ranks of a host
// need no connection. The leaders' own limit names the address.
TEST_F(worker_group_test, keeps_ranks_that_wait_for_connections_to_hosts) {
  plan.hang_timeout = ms{60'000};
  plan.world = {4, 4};
  start_all();
  for (int rank = 0; rank < 4; ++rank) {
    activity(rank).came_to_start = 1;
    ranks.launcher->lives[rank];
  }
  for (int leader : {0, 2})
    activity(leader).at_start = now();
  for (int other : {1, 3}) {
    activity(other).in_collective = now();
    activity(other).collectives = 1;
  }
  pass_seconds(110);
  EXPECT_TRUE(ranks.launcher->killed.empty());
  EXPECT_FALSE(ranks.asked_to_end(0));
  EXPECT_THAT(record->warnings.at(0).text,
              HasSubstr("rank 0 is at the start of the group for 10 s"));
  ranks.launcher->lives[2].stopped = true;
  pass_seconds(62);
  EXPECT_TRUE(ranks.asked_to_end(0));
}

TEST_F(worker_group_test, names_a_straggler_that_others_wait_for_in_each_step) {
  plan.world = {3, 3};
  start_all();
  for (std::uint64_t i = 10; i < 20; ++i) {
    for (int rank : {0, 2})
      activity(rank).waited += rank_activity::clock::duration{ms{900}}.count();
    for (int rank = 0; rank < 3; ++rank)
      system.ask<report_committed>(
        ranks.agent, report{3, {.rank = rank, .index = i, .step_s = 1.0}});
    answer_batch();
  }
  ASSERT_EQ(record->warnings.size(), 1u);
  EXPECT_THAT(record->warnings[0].text, HasSubstr("rank 1 is slower"));
}

TEST_F(worker_group_test, names_a_straggler_within_ten_steps) {
  plan.world = {3, 3};
  start_all();
  for (std::uint64_t i = 10; i < 20; ++i) {
    for (int rank = 0; rank < 3; ++rank)
      system.ask<report_committed>(
        ranks.agent,
        report{3, {.rank = rank, .index = i, .step_s = rank == 1 ? 1.0 : 0.1}});
    answer_batch();
  }
  ASSERT_EQ(record->warnings.size(), 1u);
  EXPECT_THAT(record->warnings[0].text, HasSubstr("rank 1 is slower"));
  EXPECT_FALSE(record->warnings[0].waits);
}

TEST_F(worker_group_test, does_not_warn_about_a_wait_that_is_over) {
  start_all();
  ranks.report(0, 10);
  pass_seconds(9);
  ranks.report(1, 10);
  answer_batch();
  pass_seconds(60);
  EXPECT_TRUE(record->warnings.empty());
}

TEST_F(worker_group_test,
       a_rank_that_ends_without_a_report_others_sent_is_named) {
  start_all();
  auto waits = ranks.report(0, 10);
  ranks.end_loop(1);
  EXPECT_TRUE(waits->failure);
  ranks.exit(1);
  ranks.kill(0, SIGKILL);
  EXPECT_EQ(failure_of(1).kind, kind::misuse);
  EXPECT_THAT(failure_of(1).what,
              HasSubstr("rank 1 ended its loop after 0 reports, rank 0 waits "
                        "with report 10"));
}

TEST_F(worker_group_test, a_report_that_a_finished_rank_lacks_is_refused) {
  start_all();
  ranks.finish(1);
  auto waits = ranks.report(0, 10);
  EXPECT_EQ(waits->failure.code, ec::rank_failed);
  ranks.kill(0, SIGKILL);
  EXPECT_EQ(failure_of(1).kind, kind::misuse) << "rank 0 kept the rule";
}

TEST_F(worker_group_test,
       a_rank_that_ends_while_others_wait_in_a_barrier_is_named) {
  start_all();
  auto waits = system.ask<barrier_released>(ranks.agent, join_barrier{3, 0, 0});
  ranks.finish(1);
  EXPECT_TRUE(waits->failure);
  ranks.kill(0, SIGKILL);
  EXPECT_THAT(failure_of(1).what, HasSubstr("barrier 0"));
}

} // namespace troupe::internal::test
