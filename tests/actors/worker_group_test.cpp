// The worker group between driver and ranks: how an attempt begins, what ranks
// report and how it ends well.

#include <csignal>

#include "tests/actors/worker_group_fixture.hpp"

namespace troupe::internal::test {

using testing::ElementsAre;

TEST_F(worker_group_test, launches_every_rank_with_the_segment_they_share) {
  start();
  ASSERT_EQ(ranks.launcher->launched.size(), 2u);
  for (int rank = 0; rank < 2; ++rank) {
    auto& x = ranks.launcher->launched[static_cast<std::size_t>(rank)];
    EXPECT_EQ(x.attempt, 3u);
    EXPECT_EQ(x.rank, rank);
    auto segment = shared_segment::attach(x.segment, {plan.run_id, 3});
    ASSERT_TRUE(segment) << segment.error().message;
    EXPECT_EQ(segment->ranks(), 2);
  }
}

TEST_F(worker_group_test, sends_a_rank_its_place_and_what_to_run) {
  plan.gpus = {{2, 3}, {4, 5}};
  start();
  auto hello = ranks.rise(1);
  ASSERT_TRUE(hello->value);
  auto& facts = hello->value->facts;
  EXPECT_EQ(facts.run_name, "r");
  EXPECT_EQ(facts.run_path, "/runs/r");
  EXPECT_EQ(facts.attempt, 3u);
  EXPECT_EQ(facts.rank, 1);
  EXPECT_EQ(facts.local_rank, 1);
  EXPECT_EQ(facts.world_size, 2);
  EXPECT_EQ(facts.local_world_size, 2);
  EXPECT_EQ(facts.first_report, 10u);
  EXPECT_THAT(facts.cores, ElementsAre(1));
  EXPECT_THAT(facts.gpus, ElementsAre(4, 5));
  EXPECT_EQ(hello->value->resume, checkpoint::from_directory("/checkpoints/c"));
  EXPECT_EQ(hello->value->loop.loop.offset, 2u);
  EXPECT_EQ(hello->value->loop.config, "config");
}

TEST_F(worker_group_test, says_that_the_attempt_runs_once_every_rank_is_up) {
  start();
  ranks.rise(0);
  EXPECT_TRUE(record->started.empty());
  ranks.rise(1);
  ASSERT_EQ(record->started.size(), 1u);
  EXPECT_EQ(record->started[0].attempt, 3u);
  EXPECT_EQ(record->started[0].world_size, 2);
}

TEST_F(worker_group_test, holds_a_report_until_every_rank_has_sent_one) {
  start_all();
  auto first = ranks.report(1, 10, {{"x", 1}});
  EXPECT_TRUE(first->pending());
  EXPECT_TRUE(record->batches.empty());
  auto second = ranks.report(0, 10, {{"x", 0}});
  ASSERT_EQ(record->batches.size(), 1u);
  EXPECT_EQ(record->batches[0].attempt, 3u);
  EXPECT_EQ(record->batches[0].batch.index, 10u);
  EXPECT_THAT(record->batches[0].batch.values,
              ElementsAre(metrics{{"x", 0}}, metrics{{"x", 1}}));
  EXPECT_TRUE(first->pending());
  EXPECT_TRUE(second->pending());
}

TEST_F(worker_group_test, answers_a_report_once_the_driver_has_committed_it) {
  start_all();
  auto first = ranks.report(0, 10);
  auto second = ranks.report(1, 10);
  answer_batch();
  for (auto& x : {first, second}) {
    ASSERT_TRUE(x->value) << x->failure.message;
    EXPECT_EQ(x->value->index, 10u);
    EXPECT_FALSE(x->value->checkpoint);
  }
}

TEST_F(worker_group_test, passes_the_parts_of_a_checkpoint_on) {
  start_all();
  checkpoint_part part{"best", {{"model.bin", 7, 99}}};
  auto answer = ranks.report(0, 10, {}, part);
  ranks.report(1, 10);
  ASSERT_EQ(record->batches.size(), 1u);
  EXPECT_THAT(record->batches[0].batch.parts,
              ElementsAre(std::optional{part}, std::nullopt));
  answer_batch();
  ASSERT_TRUE(answer->value);
  EXPECT_EQ(answer->value->checkpoint, "/checkpoints/best");
}

TEST_F(worker_group_test, releases_batches_in_order_while_ranks_run_ahead) {
  start_all();
  std::vector<played_ranks::report_answer> ahead;
  for (std::uint64_t i = 10; i < 14; ++i)
    ahead.push_back(ranks.report(0, i, {{"i", i}}));
  EXPECT_TRUE(record->batches.empty());
  for (std::uint64_t i = 10; i < 14; ++i)
    ranks.report(1, i, {{"i", i}});
  ASSERT_EQ(record->batches.size(), 4u);
  for (std::uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(record->batches[i].batch.index, 10 + i);
    for (auto& values : record->batches[i].batch.values)
      EXPECT_EQ(values, (metrics{{"i", 10 + i}}));
  }
  answer_batch();
  answer_batch();
  EXPECT_TRUE(ahead[0]->value);
  EXPECT_TRUE(ahead[1]->value);
  EXPECT_TRUE(ahead[2]->pending());
}

TEST_F(worker_group_test, passes_on_why_a_batch_was_not_committed) {
  start_all();
  auto first = ranks.report(0, 10);
  auto second = ranks.report(1, 10);
  answer_batch({ec::storage, "no space left"});
  for (auto& x : {first, second})
    EXPECT_EQ(x->failure, (error{ec::storage, "no space left"}));
}

TEST_F(worker_group_test,
       ends_well_once_every_loop_returned_and_no_rank_is_left) {
  start_all();
  auto goodbye = ranks.end_loop(0);
  EXPECT_TRUE(goodbye->value);
  ranks.exit(0);
  ranks.end_loop(1);
  EXPECT_TRUE(record->ended.empty());
  ranks.exit(1);
  ASSERT_EQ(record->ended.size(), 1u);
  EXPECT_EQ(record->ended[0].attempt, 3u);
  EXPECT_FALSE(record->ended[0].stopped);
  EXPECT_TRUE(record->failed.empty());
  EXPECT_TRUE(ranks.launcher->killed.empty());
}

TEST_F(worker_group_test, asks_the_driver_for_checkpoints_on_behalf_of_a_rank) {
  start_all();
  auto answer = system.ask<checkpoint_list>(ranks.agent, get_checkpoints{});
  ASSERT_TRUE(answer->value);
  ASSERT_EQ(answer->value->entries.size(), 1u);
  EXPECT_EQ(answer->value->entries[0].data.path(), "/checkpoints/a");
  EXPECT_EQ(answer->value->entries[0].index, 4u);
}

TEST_F(worker_group_test, refuses_or_drops_messages_of_another_attempt) {
  start_all();
  ranks.attempt = 2;
  EXPECT_EQ(ranks.report(0, 10)->failure.code, ec::stopped);
  EXPECT_EQ(ranks.end_loop(0)->failure.code, ec::stopped);
  EXPECT_EQ(ranks.say_hello(0)->failure.code, ec::stopped);
  auto& agent = ranks.agent;
  EXPECT_EQ(
    system.ask<barrier_released>(agent, join_barrier{2, 0})->failure.code,
    ec::stopped);
  EXPECT_EQ(system.ask<void>(agent, store_set{2, "k", "v"})->failure.code,
            ec::stopped);
  EXPECT_EQ(system.ask<std::string>(agent, store_get{2, "k"})->failure.code,
            ec::stopped);
  EXPECT_EQ(system.ask<std::int64_t>(agent, store_add{2, "k", 1})->failure.code,
            ec::stopped);
  EXPECT_EQ(system.ask<bool>(agent, store_check{2, {"k"}})->failure.code,
            ec::stopped);
  EXPECT_EQ(system.ask<void>(agent, store_wait{2, {"k"}})->failure.code,
            ec::stopped);
  EXPECT_EQ(system.ask<bool>(agent, store_erase{2, "k"})->failure.code,
            ec::stopped);
  EXPECT_EQ(system.ask<std::int64_t>(agent, store_size{2})->failure.code,
            ec::stopped);
  EXPECT_EQ(system.ask<std::string>(agent, store_compare_set{2, "k", "", "v"})
              ->failure.code,
            ec::stopped);
  send_anonymous(ranks.group,
                 rank_exited{2, 0, {process_exit::kind::exited, 1, {}}});
  send_anonymous(ranks.group, rank_launched{2, 0, 1});
  send_anonymous(ranks.group, rank_launch_failed{2, 0, {ec::spawn, "no"}});
  system.settle();
  EXPECT_TRUE(record->failed.empty());
  // The current attempt noticed nothing.
  EXPECT_EQ(state().attempt->tracker.pid(0), 100);
  EXPECT_FALSE(state().attempt->tracker.gone(0));
  EXPECT_FALSE(state().attempt->tracker.failed());
  ranks.attempt = 3;
  ranks.report(0, 10);
  ranks.report(1, 10);
  EXPECT_EQ(record->batches.size(), 1u);
}

TEST_F(worker_group_test, knows_nothing_of_ranks_that_it_does_not_have) {
  start_all();
  auto& group = ranks.group;
  send_anonymous(group, rank_exited{3, 2, {process_exit::kind::exited, 1, {}}});
  send_anonymous(group, rank_launched{3, -1, 1});
  send_anonymous(group, rank_launch_failed{3, 9, {ec::spawn, "no"}});
  system.settle();
  EXPECT_TRUE(ranks.report(7, 10)->failure);
  EXPECT_TRUE(ranks.end_loop(-1)->failure);
  EXPECT_TRUE(
    system.ask<barrier_released>(ranks.agent, join_barrier{3, 5, 0})->failure);
  EXPECT_FALSE(ranks.asked_to_end(0));
  EXPECT_TRUE(record->failed.empty());
}

TEST_F(worker_group_test, a_barrier_opens_once_every_rank_is_there) {
  start_all();
  auto first = system.ask<barrier_released>(ranks.agent, join_barrier{3, 1, 0});
  EXPECT_TRUE(first->pending());
  auto second =
    system.ask<barrier_released>(ranks.agent, join_barrier{3, 0, 0});
  EXPECT_TRUE(first->value);
  EXPECT_TRUE(second->value);
}

TEST_F(worker_group_test, a_broadcast_gives_every_rank_what_rank_0_has) {
  start_all();
  auto first = system.ask<barrier_released>(
    ranks.agent, join_barrier{3, 0, 0, meeting_kind::broadcast, "from zero"});
  auto second = system.ask<barrier_released>(
    ranks.agent, join_barrier{3, 1, 0, meeting_kind::broadcast, "from one"});
  for (auto& x : {first, second}) {
    ASSERT_TRUE(x->value);
    EXPECT_EQ(x->value->payload, "from zero");
  }
}

TEST_F(worker_group_test, ranks_in_different_collectives_fail_with_both_named) {
  start_all();
  auto first = system.ask<barrier_released>(ranks.agent, join_barrier{3, 0, 0});
  auto second = system.ask<barrier_released>(
    ranks.agent, join_barrier{3, 1, 0, meeting_kind::broadcast, {}});
  EXPECT_TRUE(first->failure);
  EXPECT_EQ(second->failure.code, ec::conflict);
  ranks.kill(0, SIGKILL);
  ranks.kill(1, SIGKILL);
  auto& failure = failure_of(1);
  EXPECT_EQ(failure.kind, kind::misuse);
  EXPECT_NE(failure.what.find("rank 0 in barrier 0, rank 1 in broadcast 0"),
            std::string::npos)
    << failure.what;
}

TEST_F(worker_group_test, a_report_and_a_barrier_end_the_attempt_at_once) {
  plan.world = {3, 3};
  plan.report_timeout = ms{400};
  start_all();
  auto report = ranks.report(0, 10);
  auto barrier =
    system.ask<barrier_released>(ranks.agent, join_barrier{3, 2, 0});
  EXPECT_TRUE(report->failure);
  EXPECT_TRUE(barrier->failure);
  for (int rank : {0, 1, 2})
    ranks.kill(rank, SIGKILL);
  for (int rank : {0, 2}) {
    EXPECT_EQ(failure_of(rank).kind, kind::misuse);
    EXPECT_EQ(failure_of(rank).what, "the ranks are in different calls: rank 0 "
                                     "in report 10, rank 2 in barrier 0");
  }
  EXPECT_EQ(record->failed[0].ranks.size(), 2u) << "rank 1 did nothing wrong";
}

TEST_F(worker_group_test, a_report_that_does_not_wait_may_meet_a_barrier) {
  start_all();
  auto barrier =
    system.ask<barrier_released>(ranks.agent, join_barrier{3, 1, 0});
  auto ahead = system.ask<report_committed>(
    ranks.agent, report{3, {.rank = 0, .index = 10}, false});
  EXPECT_TRUE(barrier->pending());
  EXPECT_TRUE(ahead->pending());
  system.ask<barrier_released>(ranks.agent, join_barrier{3, 0, 0});
  EXPECT_TRUE(barrier->value);
  ranks.report(1, 10);
  answer_batch();
  EXPECT_TRUE(ahead->value);
}

TEST_F(worker_group_test,
       a_rank_that_awaits_its_reports_never_meets_a_barrier) {
  start_all();
  auto barrier =
    system.ask<barrier_released>(ranks.agent, join_barrier{3, 1, 0});
  system.ask<report_committed>(ranks.agent,
                               report{3, {.rank = 0, .index = 10}, false});
  send_anonymous(ranks.agent, reports_awaited{2, 0});
  system.settle();
  EXPECT_TRUE(barrier->pending());
  send_anonymous(ranks.agent, reports_awaited{3, 0});
  system.settle();
  EXPECT_TRUE(barrier->failure);
}

TEST_F(worker_group_test, a_broadcast_that_rank_0_refuses_fails_on_every_rank) {
  start_all();
  error too_large{ec::invalid_argument, "too large"};
  auto first = system.ask<barrier_released>(
    ranks.agent, join_barrier{3, 0, 0, meeting_kind::broadcast, {}, too_large});
  auto second = system.ask<barrier_released>(
    ranks.agent, join_barrier{3, 1, 0, meeting_kind::broadcast});
  for (auto& x : {first, second})
    EXPECT_EQ(x->failure, (error{ec::invalid_argument,
                                 "rank 0 refused broadcast 0: too large"}));
  // No rank has failed for it.
  system.ask<barrier_released>(ranks.agent, join_barrier{3, 0, 1});
  auto next = system.ask<barrier_released>(ranks.agent, join_barrier{3, 1, 1});
  EXPECT_TRUE(next->value);
}

TEST_F(worker_group_test, the_store_answers_a_get_once_its_key_is_set) {
  start_all();
  auto get = system.ask<std::string>(ranks.agent, store_get{3, "k"});
  EXPECT_TRUE(get->pending());
  EXPECT_TRUE(system.ask<void>(ranks.agent, store_set{3, "k", "v"})->value);
  EXPECT_EQ(get->value, "v");
  auto again = system.ask<std::string>(ranks.agent, store_get{3, "k"});
  EXPECT_EQ(again->value, "v");
}

TEST_F(worker_group_test, the_store_answers_a_wait_once_all_its_keys_exist) {
  start_all();
  auto wait = system.ask<void>(ranks.agent, store_wait{3, {"a", "b", "c"}});
  system.ask<void>(ranks.agent, store_set{3, "a", "1"});
  system.ask<std::int64_t>(ranks.agent, store_add{3, "b", 1});
  EXPECT_TRUE(wait->pending());
  system.ask<std::string>(ranks.agent, store_compare_set{3, "c", "", "3"});
  EXPECT_TRUE(wait->value);
  auto again = system.ask<void>(ranks.agent, store_wait{3, {"a", "b"}});
  EXPECT_TRUE(again->value);
}

TEST_F(worker_group_test, the_store_counts_compares_checks_and_erases) {
  start_all();
  auto& agent = ranks.agent;
  EXPECT_EQ(system.ask<std::int64_t>(agent, store_add{3, "n", 4})->value, 4);
  EXPECT_EQ(system.ask<std::int64_t>(agent, store_add{3, "n", -1})->value, 3);
  EXPECT_EQ(system.ask<std::string>(agent, store_get{3, "n"})->value, "3");
  auto swap = [&](std::string expected_value, std::string desired) {
    return system
      .ask<std::string>(agent,
                        store_compare_set{3, "n", expected_value, desired})
      ->value;
  };
  EXPECT_EQ(swap("4", "5"), "3");
  EXPECT_EQ(swap("3", "text"), "text");
  EXPECT_EQ(system.ask<std::int64_t>(agent, store_add{3, "n", 1})->failure.code,
            ec::invalid_argument);
  EXPECT_EQ(system.ask<std::int64_t>(agent, store_size{3})->value, 1);
  EXPECT_EQ(system.ask<bool>(agent, store_check{3, {"n"}})->value, true);
  EXPECT_EQ(system.ask<bool>(agent, store_check{3, {"n", "m"}})->value, false);
  EXPECT_EQ(system.ask<bool>(agent, store_erase{3, "n"})->value, true);
  EXPECT_EQ(system.ask<bool>(agent, store_erase{3, "n"})->value, false);
}

TEST_F(worker_group_test, a_new_attempt_finds_an_empty_store) {
  start_all();
  system.ask<void>(ranks.agent, store_set{3, "k", "v"});
  ranks.finish(0);
  ranks.finish(1);
  send_anonymous(ranks.group, start_attempt{4, std::nullopt, 12}, driver);
  system.settle();
  EXPECT_EQ(system.ask<std::int64_t>(ranks.agent, store_size{4})->value, 0);
  EXPECT_EQ(ranks.launcher->launched.size(), 4u);
  EXPECT_EQ(ranks.launcher->launched[2].attempt, 4u);
}

TEST_F(worker_group_test, tells_how_far_rank_0_is_in_its_epoch) {
  start_all();
  auto& pass = activity(0).pass;
  pass.take(2, 1, 5, rank_activity::now());
  pass_seconds(1);
  EXPECT_TRUE(record->progress.empty()) << "no batch is done";
  pass.take(2, 4, 5, rank_activity::now());
  pass_seconds(3);
  ASSERT_EQ(record->progress.size(), 1u);
  EXPECT_EQ(record->progress[0].attempt, 3u);
  auto& shown = record->progress[0].progress;
  ASSERT_TRUE(shown);
  EXPECT_EQ(shown->epoch, 2u);
  EXPECT_EQ(shown->batch, 3u);
  EXPECT_EQ(shown->batches, 5u);
  EXPECT_GE(shown->left_s, 0);
  pass.end();
  pass_seconds(1);
  ASSERT_EQ(record->progress.size(), 2u);
  EXPECT_FALSE(record->progress[1].progress);
}

} // namespace troupe::internal::test
