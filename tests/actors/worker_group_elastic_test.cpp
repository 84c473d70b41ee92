// The worker group of an elastic run, as hosts are lost and join.

#include <csignal>

#include "tests/actors/joining_host_fixture.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal::test {

using testing::HasSubstr;

/// An elastic run on the driver's host and two others, with one rank each.
class elastic_group_test : public joining_host_test {
protected:
  elastic_group_test() { spawn(resize_policy::next_checkpoint); }

  void spawn(resize_policy policy) {
    plan.world = {2, 3};
    plan.resize = policy;
    spawn_group({{{"", 0, 1, 1}, {"", 1, 1, 1}, {"", 2, 1, 1}},
                 own_facts(),
                 host_limits{.join = ms{1500}, .min_ranks = 2},
                 "10.0.0.1 port 7"});
  }

  /// An agent joins; its ranks are played by *theirs*.
  void join_as(played_ranks& theirs, std::uint64_t incarnation) {
    join(incarnation);
    play(theirs);
  }

  void begin(std::uint64_t attempt, std::uint64_t first_report = 0) {
    ranks.attempt = attempt;
    for (auto* theirs : {&second, &third})
      theirs->attempt = attempt;
    start(attempt, first_report);
  }

  /// The first attempt has all three hosts.
  void start_three() {
    join_as(second, 1);
    join_as(third, 2);
    begin(3);
    ranks.rise(0);
    second.rise(1);
    third.rise(2);
  }

  /// The first one has two hosts, since the third does not come in time.
  void start_two() {
    join_as(second, 1);
    begin(3);
    pass_alive(3, 1);
    ranks.rise(0);
    second.rise(1);
  }

  /// Rank 2 of *attempt* cannot be launched; the others are up.
  void fail_to_start(std::uint64_t attempt) {
    begin(attempt);
    ranks.rise(0);
    second.rise(1);
    third.launcher->fail(2, {ec::spawn, "no more processes"});
    system.settle();
    ranks.kill(0, SIGKILL);
    second.kill(1, SIGKILL);
  }

  /// Ranks 0 and 1 report; without a *name* it is a report without a
  /// checkpoint.
  played_ranks::report_answer report_both(std::uint64_t index,
                                          const std::string& name = {}) {
    std::optional<checkpoint_part> part;
    if (!name.empty())
      part.emplace().name = name;
    auto answer = ranks.report(0, index, {}, std::move(part));
    second.report(1, index);
    answer_batch();
    EXPECT_TRUE(answer->value);
    return answer;
  }

  /// *rank* failed in the way *what*, and that does not count, since the host
  /// h1 is lost.
  void expect_excused(int rank, kind what) {
    EXPECT_EQ(failure_of(rank).kind, what);
    EXPECT_NE(record->failed.at(0).left_for, "");
  }

  void expect_counts() {
    ASSERT_EQ(record->failed.size(), 1u);
    EXPECT_EQ(record->failed[0].left_for, "");
  }

  played_ranks second{system};
  played_ranks third{system};
};

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

// Both freeze in the same second, but the network breaks for one of them.
TEST_F(elastic_group_test, two_hosts_lost_at_once_do_not_count_as_a_failure) {
  start_three();
  lose(second.agent);
  EXPECT_EQ(third.launcher->killed, std::vector{2});
  ranks.kill(0, SIGKILL);
  pass_seconds(1);
  tick(2, 2); // Its last sign of life.
  pass_seconds(11);
  ASSERT_EQ(record->failed.size(), 1u);
  EXPECT_NE(record->failed[0].left_for, "");
  EXPECT_EQ(abandoned.size(), 2u);
}

TEST_F(elastic_group_test,
       a_rank_killed_before_its_host_does_not_count_as_a_failure) {
  start_three();
  second.kill(1, SIGKILL);
  lose(second.agent);
  ranks.kill(0, SIGKILL);
  third.kill(2, SIGKILL);
  expect_excused(1, kind::signal);
}

// A limit that is shorter than the time until a silent host is lost.
TEST_F(elastic_group_test, a_limit_that_a_lost_host_exceeds_is_not_a_failure) {
  plan.report_timeout = ms{5000};
  host_limits limits{.join = ms{1500}, .lost_after = ms{40'000}};
  limits.min_ranks = 2;
  spawn_group({{{"", 0, 1, 1}, {"", 1, 1, 1}, {"", 2, 1, 1}},
               own_facts(),
               limits,
               "10.0.0.1 port 7"});
  start_three();
  system.hold(second.agent);
  ranks.report(0, 0);
  third.report(2, 0);
  for (int i = 0; i < 39 && !ranks.asked_to_end(0); ++i) {
    pass_seconds(1);
    tick(2, 2);
  }
  ranks.kill(0, SIGKILL);
  third.kill(2, SIGKILL);
  EXPECT_TRUE(record->failed.empty());
  for (int i = 0; i < 40 && record->failed.empty(); ++i) {
    pass_seconds(1);
    tick(2, 2);
  }
  expect_excused(1, kind::timeout);
}

// The order to start ranks comes back as an error, too.
TEST_F(elastic_group_test, a_host_lost_as_its_ranks_start_is_not_a_failure) {
  join_as(second, 1);
  join_as(third, 2);
  system.hold(second.agent);
  lose(second.agent);
  begin(3);
  system.release();
  ranks.kill(0, SIGKILL);
  third.kill(2, SIGKILL);
  expect_excused(1, kind::lost);
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
  EXPECT_TRUE(state().seen(0).at_device);
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

TEST_F(elastic_group_test, a_rank_that_fails_by_itself_is_a_failure) {
  start_three();
  second.kill(1, SIGKILL);
  ranks.kill(0, SIGKILL);
  third.kill(2, SIGKILL);
  EXPECT_EQ(failure_of(1).kind, kind::signal);
  EXPECT_EQ(record->failed[0].left_for, "");
}

TEST_F(elastic_group_test, leaves_a_host_out_that_cannot_start_ranks) {
  start_three();
  ranks.kill(0, SIGSEGV);
  second.kill(1, SIGKILL);
  third.kill(2, SIGKILL);
  fail_to_start(4);
  ASSERT_EQ(record->failed.size(), 2u);
  EXPECT_THAT(record->failed[1].left_for, HasSubstr("no more processes"));
  EXPECT_THAT(notes, HasSubstr("host h1 gets no ranks for 1 min: "));
  begin(5);
  ranks.rise(0);
  second.rise(1);
  EXPECT_EQ(record->started.at(1).world_size, 2);
  for (int i = 0; i < 61; ++i) {
    pass_seconds(1);
    tick(1, 1);
    tick(2, 2);
  }
  EXPECT_TRUE(report_both(0, "c0")->value->stop) << "it is tried again";
}

// Before that, the program may be the cause.
TEST_F(elastic_group_test, a_failed_start_counts_until_an_attempt_has_come_up) {
  join_as(second, 1);
  join_as(third, 2);
  fail_to_start(3);
  expect_counts();
  EXPECT_FALSE(record->failed[0].started);
  begin(4);
  EXPECT_EQ(second.launcher->prepared.at(0).world_size, 2);
}

TEST_F(elastic_group_test, leaves_a_new_host_out_on_which_loops_fail) {
  start_two();
  join_as(third, 2);
  EXPECT_TRUE(report_both(0, "c0")->value->stop);
  ranks.finish(0);
  second.finish(1);
  begin(4, 1);
  ranks.rise(0);
  second.rise(1);
  third.rise(2);
  third.kill(2, SIGILL);
  ranks.kill(0, SIGKILL);
  second.kill(1, SIGKILL);
  ASSERT_EQ(record->failed.size(), 1u);
  EXPECT_THAT(record->failed[0].left_for,
              HasSubstr("ranks failed before a report on h1: rank 2: "));
  EXPECT_THAT(notes, HasSubstr("host h1 gets no ranks for 1 min: "));
  begin(5, 1);
  EXPECT_EQ(second.launcher->prepared.at(0).world_size, 2);
}

TEST_F(elastic_group_test, a_loop_that_fails_after_a_report_is_a_failure) {
  start_three();
  ranks.report(0, 0);
  second.report(1, 0);
  third.report(2, 0);
  answer_batch();
  third.kill(2, SIGILL);
  ranks.kill(0, SIGKILL);
  second.kill(1, SIGKILL);
  expect_counts();
}

// No attempt has shown yet that the loops work anywhere.
TEST_F(elastic_group_test, a_loop_that_fails_before_any_report_is_a_failure) {
  join_as(second, 1);
  join_as(third, 2);
  begin(3);
  third.rise(2);
  third.kill(2, SIGILL);
  ranks.kill(0, SIGKILL);
  second.kill(1, SIGKILL);
  expect_counts();
  begin(4);
  EXPECT_EQ(second.launcher->prepared.at(0).world_size, 3);
}

/// How rank 0 may fail: an exception leaves its loop, or a watchdog of the
/// loop's libraries ends its process since its collective failed.
class failing_rank_test
  : public elastic_group_test,
    public testing::WithParamInterface<rank_failure::kind_type> {
protected:
  void fail() {
    if (GetParam() == kind::signal) {
      ranks.kill(0, SIGABRT);
      return;
    }
    ranks.end_loop(0, {ec::rank_failed, "a connection was closed"});
    ranks.exit(0);
  }
};

INSTANTIATE_TEST_SUITE_P(by, failing_rank_test,
                         testing::Values(rank_failure::kind_type::exception,
                                         rank_failure::kind_type::signal),
                         [](auto& x) {
                           return x.param == rank_failure::kind_type::signal
                                    ? "signal"
                                    : "exception";
                         });

TEST_P(failing_rank_test, a_failure_since_a_host_is_silent_is_its_loss) {
  start_two();
  pass_alive(1, 1);
  pass_seconds(5);
  fail();
  pass_seconds(6);
  expect_excused(0, GetParam());
}

TEST_P(failing_rank_test, a_failure_before_the_last_sign_of_a_host_counts) {
  start_two();
  fail();
  pass_alive(2, 1);
  pass_seconds(12);
  expect_counts();
}

TEST_F(elastic_group_test, an_end_after_a_host_is_lost_follows_from_its_loss) {
  start_two();
  pass_alive(1, 1);
  lose(second.agent);
  ranks.kill(0, SIGABRT);
  expect_excused(0, kind::signal);
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
    return system.ask<host_accepted>(
      ranks.group, hello_of(3), caf::actor_cast<caf::strong_actor_ptr>(other));
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
