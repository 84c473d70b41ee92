// The worker group of an elastic run, as hosts are lost and join.

#include <csignal>

#include "tests/actors/elastic_group_fixture.hpp"

namespace troupe::internal::test {

using testing::HasSubstr;

TEST_F(elastic_group_test, starts_with_enough_hosts_after_the_join_limit) {
  join_as(second, 1);
  begin(3);
  EXPECT_TRUE(ranks.launcher->launched.empty()) << "it waits for all";
  pass_alive(3, 1);
  ASSERT_EQ(second.launcher->prepared.size(), 1u);
  EXPECT_EQ(second.launcher->prepared[0].world_size, 2);
  ranks.rise(0);
  second.rise(1);
  ASSERT_EQ(record->started.size(), 1u);
  EXPECT_EQ(record->started[0].world_size, 2);
}

TEST_F(elastic_group_test, continues_without_a_lost_host) {
  start_three();
  EXPECT_EQ(record->started.at(0).world_size, 3);
  lose(second.agent);
  ranks.kill(0, SIGKILL);
  third.kill(2, SIGKILL);
  expect_excused(1, kind::lost);
  begin(4);
  // At once, and the last host has the second rank.
  ASSERT_EQ(third.launcher->prepared.size(), 1u);
  EXPECT_EQ(third.launcher->prepared[0].rank, 1);
  EXPECT_EQ(third.launcher->prepared[0].node_rank, 1);
  EXPECT_EQ(third.launcher->prepared[0].world_size, 2);
  ranks.rise(0);
  third.rise(1);
  EXPECT_EQ(record->started.at(1).world_size, 2);
  // It works with them.
  auto answer = ranks.report(0, 0);
  third.report(1, 0);
  answer_batch();
  EXPECT_TRUE(answer->value);
}

TEST_F(elastic_group_test, grows_with_a_host_that_answers_again) {
  start_three();
  for (int i = 0; i < 4; ++i) {
    pass_seconds(1);
    tick(1, 1);
  }
  ranks.kill(0, SIGSEGV);
  second.kill(1, SIGKILL);
  third.kill(2, SIGKILL);
  begin(4);
  ranks.rise(0);
  second.rise(1);
  EXPECT_EQ(record->started.at(1).world_size, 2) << "without the silent host";
  tick(2, 2);
  auto answer = report_both(0, "c0");
  ASSERT_TRUE(answer->value->stop);
  EXPECT_EQ(answer->value->stop->kind, stop_info::kind_type::continues);
}

TEST_F(elastic_group_test, a_frozen_spare_host_delays_no_look_at_ranks) {
  start_two();
  join_as(third, 2);
  system.hold(third.agent);
  pass_seconds(1);
  activity(0).at_device = now();
  pass_seconds(1);
  EXPECT_TRUE(state().attempt->monitor.seen(0).at_device);
}

TEST_F(elastic_group_test, a_lost_host_without_ranks_leaves_none_behind) {
  join_as(third, 2);
  lose(third.agent); // Before the first attempt.
  start_two();
  join_as(third, 3);
  notes.clear();
  lose(third.agent);
  EXPECT_TRUE(abandoned.empty());
  EXPECT_THAT(notes, HasSubstr("host h1 is lost: "));
}

TEST_F(elastic_group_test, too_few_hosts_wait_and_end_the_run) {
  start_two();
  lose(second.agent);
  ranks.kill(0, SIGKILL);
  EXPECT_NE(record->failed.at(0).left_for, "");
  begin(4);
  EXPECT_EQ(record->failed.size(), 1u) << "it waits";
  pass_seconds(3);
  ASSERT_EQ(record->failed.size(), 2u);
  EXPECT_TRUE(record->failed[1].is_final);
}

TEST_F(elastic_group_test, grows_after_a_report_with_a_checkpoint) {
  start_two();
  join_as(third, 2);
  EXPECT_TRUE(third.launcher->launched.empty());
  EXPECT_FALSE(report_both(0)->value->stop) << "without a checkpoint";
  auto answer = report_both(1, "c1");
  ASSERT_TRUE(answer->value->stop);
  EXPECT_EQ(answer->value->stop->index, 1u);
  EXPECT_EQ(answer->value->stop->kind, stop_info::kind_type::continues);
  EXPECT_EQ(answer->value->stop->reason, "the run grows from 2 to 3 ranks");
  ranks.finish(0);
  second.finish(1);
  ASSERT_EQ(record->ended.size(), 1u);
  EXPECT_NE(record->ended[0].left_for, "");
  begin(4, 2);
  ASSERT_EQ(third.launcher->prepared.size(), 1u);
  EXPECT_EQ(third.launcher->prepared[0].rank, 2);
  EXPECT_EQ(third.launcher->prepared[0].world_size, 3);
}

// The next attempt would begin without it.
TEST_F(elastic_group_test, does_not_grow_for_a_host_that_is_silent) {
  start_two();
  join_as(third, 2);
  pass_alive(4, 1);
  EXPECT_THAT(notes, HasSubstr("host h1 has not answered for "));
  EXPECT_FALSE(report_both(0, "c0")->value->stop);
  tick(2, 2);
  EXPECT_TRUE(report_both(1, "c1")->value->stop);
}

TEST_F(elastic_group_test, does_not_grow_if_that_is_never_wished) {
  spawn(resize_policy::never);
  start_two();
  join_as(third, 2);
  EXPECT_FALSE(report_both(0, "c0")->value->stop);
}

/// An elastic run with up to two ranks on each of three hosts, and a GPU for
/// each rank; the driver has one.
class claiming_group_test : public elastic_group_test {
protected:
  claiming_group_test() {
    auto own = own_facts();
    own.gpus = 1;
    host_limits limits{.join = ms{1500}, .min_ranks = 2};
    limits.claim.gpus = 1;
    plan.world = {2, 6};
    plan.resize = resize_policy::never;
    plan.gpus = {{0}, {1}};
    plan.own_gpus = {{5}};
    spawn_group({{{"", 0, 2, 2}, {"", 2, 2, 2}, {"", 4, 2, 2}},
                 own,
                 limits,
                 "10.0.0.1 port 7"});
  }
};

TEST_F(claiming_group_test, hosts_have_ranks_for_the_gpus_that_they_have) {
  gpus = 1;
  join_as(second, 1);
  EXPECT_THAT(notes, HasSubstr("host h1 has room for 1 of 2 ranks: 2 workers "
                               "ask for 2 gpus, host h1 has 1"));
  gpus = 2;
  join_as(third, 2);
  begin(3);
  ASSERT_EQ(ranks.launcher->prepared.size(), 1u);
  ASSERT_EQ(second.launcher->prepared.size(), 1u);
  ASSERT_EQ(third.launcher->prepared.size(), 2u);
  EXPECT_EQ(ranks.launcher->prepared[0].gpus, std::vector{5})
    << "another run has the first ones of the driver's host";
  EXPECT_EQ(second.launcher->prepared[0].world_size, 4);
  EXPECT_EQ(second.launcher->prepared[0].gpus, std::vector{0});
  EXPECT_EQ(third.launcher->prepared[0].gpus, std::vector{0});
  EXPECT_EQ(third.launcher->prepared[1].gpus, std::vector{1});
}

/// An elastic run whose own hosts, the driver's and a launched one, have room
/// for two of its three ranks.
class guest_group_test : public elastic_group_test {
protected:
  guest_group_test() {
    worker_group_args args;
    args.leaves_as_one = true;
    args.launches.begin = [this](std::size_t, std::uint64_t launch) {
      launched = launch;
    };
    args.launches.arrived = args.launches.end = [](std::uint64_t) {};
    spawn_group({{{"", 0, 1, 1}, {"h1", 1, 1, 1}},
                 own_facts(),
                 host_limits{.join = ms{1500}, .min_ranks = 2, .max_ranks = 3},
                 "10.0.0.1 port 7",
                 [] { return 0.0; }},
                std::move(args));
    begin(3);
    join(1, {}, launched);
    play(second);
    ranks.rise(0);
    second.rise(1);
  }

  std::uint64_t launched = 0;
};

TEST_F(guest_group_test, a_host_that_was_not_planned_has_ranks_after_a_report) {
  EXPECT_EQ(join(2).node_rank, 2u);
  play(third);
  EXPECT_TRUE(third.launcher->launched.empty());
  auto answer = report_both(0, "c0");
  ASSERT_TRUE(answer->value->stop);
  EXPECT_EQ(answer->value->stop->kind, stop_info::kind_type::continues);
  ranks.finish(0);
  second.finish(1);
  ASSERT_EQ(record->ended.size(), 1u);
  begin(4, 1);
  ASSERT_EQ(third.launcher->prepared.size(), 1u);
  EXPECT_EQ(third.launcher->prepared[0].rank, 2);
  EXPECT_EQ(third.launcher->prepared[0].node_rank, 2);
  EXPECT_EQ(third.launcher->prepared[0].world_size, 3);
}

TEST_F(guest_group_test, a_host_that_is_left_out_leaves_room_for_a_guest) {
  join(2);
  play(third);
  auto asked = 0;
  other =
    system.spawn(host_agent, host_agent_args{elsewhere, [&asked] { ++asked; }});
  auto ask = [&] {
    auto hello = hello_of(3);
    hello.facts.host = "another";
    return system.ask<host_accepted>(
      ranks.group, hello, caf::actor_cast<caf::strong_actor_ptr>(other));
  };
  EXPECT_EQ(ask()->failure.code, ec::conflict);
  report_both(0, "c0");
  ranks.finish(0);
  second.finish(1);
  fail_to_start(4);
  EXPECT_THAT(notes, HasSubstr("gets no ranks for 1 min: "));
  EXPECT_EQ(asked, 2) << "once as the attempt began";
  EXPECT_TRUE(ask()->value);
}

TEST_F(guest_group_test, a_guest_that_is_about_to_leave_does_so_alone) {
  join(2);
  send_anonymous(ranks.group, host_notice{2, 2, "SIGTERM", 5000});
  system.settle();
  EXPECT_TRUE(record->preempts.empty());
  EXPECT_EQ(cut_off, std::vector<host_agent_actor>{other});
}

TEST_F(elastic_group_test, the_first_host_is_called_by_the_last_with_ranks) {
  start_three();
  EXPECT_EQ(ranks.launcher->prepared.at(0).host_address, "10.0.0.1");
  EXPECT_EQ(third.launcher->prepared.at(0).host_address, "10.0.0.2");
}

} // namespace troupe::internal::test
