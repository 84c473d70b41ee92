// When an attempt starts, with which hosts, and which it says are missing.

#include "tests/unit/runtime/hosts/host_states_fixture.hpp"

namespace troupe::internal::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(host_states_test, starts_once_all_hosts_are_ready) {
  make(2);
  EXPECT_THAT(gather(), ElementsAre("launch 0 as 1", "launch 1 as 2"));
  EXPECT_EQ(state(0), host_state::launching);
  launched(0, 1);
  EXPECT_EQ(state(0), host_state::connecting);
  EXPECT_THAT(hello(0, 7), IsEmpty());
  EXPECT_EQ(state(0), host_state::ready);
  EXPECT_THAT(hello(1, 8), ElementsAre("start 0 1")); // Before on_launched.
  states->on_attempt_started({0, 1});
  EXPECT_EQ(state(1), host_state::serving);
  states->on_attempt_ended(now);
  EXPECT_EQ(state(1), host_state::ready);
  EXPECT_THAT(gather(), ElementsAre("start 0 1"));
}

TEST_F(host_states_test, waits_for_agents_that_come_by_themselves) {
  make(2, {}, false);
  EXPECT_THAT(gather(), IsEmpty());
  EXPECT_THAT(pass(seconds{100}), IsEmpty());
  EXPECT_THAT(hello(0, 1), IsEmpty());
  EXPECT_THAT(hello(1, 1), ElementsAre("start 0 1"));
}

TEST_F(host_states_test, starts_with_enough_hosts_after_the_join_limit) {
  make(3, {.min_ranks = 2});
  gather();
  for (std::size_t i = 0; i < 3; ++i)
    launched(i, i + 1);
  hello(0, 1);
  hello(2, 1);
  EXPECT_THAT(pass(seconds{119}, {0, 2}), IsEmpty());
  EXPECT_THAT(pass(seconds{1}, {0, 2}),
              ElementsAre("end launcher 2 of 1", "start 0 2"));
}

TEST_F(host_states_test, names_each_missing_host_and_its_cause) {
  make(6);
  gather();
  hello(0, 1);
  launched(1, 2);
  launched(2, 3);
  launched(4, 5);
  EXPECT_THAT(
    launcher_ended(2, 3, "ssh: connect to host c port 22: No route to host",
                   false),
    ElementsAre("given up 2: ssh: connect to host c port 22: No route to host",
                "fail spawn: 5 of 6 hosts are missing, and 6 are needed:\n"
                "  b: launched, but its agent did not connect to "
                "10.0.0.1:4444\n"
                "  c: ssh: connect to host c port 22: No route to host\n"
                "  d: its launcher has not started\n"
                "  e: launched, but its agent did not connect to "
                "10.0.0.1:4444\n"
                "  f: its launcher has not started"));
}

TEST_F(host_states_test, does_not_count_a_driver_without_ranks) {
  states.emplace(
    std::vector<run_host>{{"driver", false, {0, {}}, 0}, {"a", true}},
    host_limits{}, "10.0.0.1:7", [] { return 0.0; });
  hello(0, 1);
  EXPECT_THAT(gather(), ElementsAre("launch 1 as 1"));
  EXPECT_THAT(launcher_ended(1, 1, "exit code 78", false),
              ElementsAre("given up 1: exit code 78",
                          "fail spawn: 1 of 1 hosts is missing, and 1 is "
                          "needed:\n  a: exit code 78"));
}

TEST_F(host_states_test, names_the_cause_before_a_launch_under_way) {
  make(2);
  gather();
  hello(0, 1);
  launcher_ended(1, 2, "Connection timed out");
  EXPECT_THAT(pass(seconds{1}, {0}), ElementsAre("launch 1 as 3"));
  launched(1, 3);
  EXPECT_THAT(pass(seconds{119}, {0}),
              testing::Contains(testing::EndsWith(
                "  b: launched, but its agent did not connect to "
                "10.0.0.1:4444; before that: Connection timed out")));
}

TEST_F(host_states_test, fails_after_the_join_limit_with_too_few_hosts) {
  make(2, {}, false);
  gather();
  hello(0, 1);
  EXPECT_THAT(
    pass(seconds{120}, {0}),
    ElementsAre("fail timeout: 1 of 2 hosts is missing after 120 s, and "
                "2 are needed:\n"
                "  b: no agent has connected to 10.0.0.1:4444"));
  EXPECT_THAT(pass(seconds{200}, {0}), IsEmpty()); // HS-4
}

TEST_F(host_states_test, a_guest_that_is_gone_does_not_hold_an_attempt_back) {
  make(2, {.min_ranks = 2});
  gather();
  hello(0, 1);
  states->add_guest(1);
  EXPECT_THAT(hello(2, 7), IsEmpty()) << "there are enough, but not all";
  states->on_gone(2, 7, "lost", now);
  launched(1, 2);
  EXPECT_THAT(hello(1, 1), ElementsAre("start 0 1"));
}

TEST_F(host_states_test, a_guest_that_is_gone_may_make_too_few_hosts_enough) {
  make(2, {.min_ranks = 3});
  states->add_guest(1);
  gather();
  hello(0, 1);
  hello(2, 7);
  states->on_gone(2, 7, "lost", now);
  launched(1, 2);
  EXPECT_THAT(hello(1, 1), IsEmpty());
  EXPECT_THAT(hello(2, 8), ElementsAre("start 0 1 2"));
}

TEST_F(host_states_test, starts_early_if_no_other_host_can_come) {
  make(2, {.max_relaunches = 0, .min_ranks = 1});
  gather();
  hello(0, 1);
  EXPECT_THAT(launcher_ended(1, 2, "no such host"),
              ElementsAre("given up 1 for 10: no such host", "start 0"));
}

TEST_F(host_states_test, a_group_that_does_not_wait_starts_with_what_is_there) {
  serve(3, {.min_ranks = 2});
  hello(2, 2);
  states->on_gone(1, 1, "lost", now);
  states->on_attempt_ended(now);
  EXPECT_THAT(to_lines(states->gather(now, seconds{0})),
              ElementsAre("start 0 2"));
}

TEST_F(host_states_test, an_elastic_run_needs_room_for_its_fewest_ranks) {
  states.emplace(
    std::vector<run_host>{{"h0", false, 2}, {"h1", false, 1}, {"h2", false, 4}},
    host_limits{.min_ranks = 5}, "10.0.0.1:7", [] { return 0.0; });
  hello(0, 1);
  EXPECT_THAT(to_lines(states->gather(now, seconds{5}, true)), IsEmpty());
  EXPECT_THAT(hello(1, 1), IsEmpty()) << "three slots";
  EXPECT_THAT(hello(2, 1), ElementsAre("start 0 1 2"));
  states->on_gone(1, 1, "lost", now);
  EXPECT_THAT(to_lines(states->gather(now, seconds{5}, true)),
              ElementsAre("start 0 2"));
  states->on_gone(2, 1, "lost", now);
  gather();
  EXPECT_THAT(pass(seconds{121}, {0}),
              ElementsAre(HasSubstr("room for 5 ranks is needed")));
}

TEST_F(host_states_test, leaves_a_host_out_after_a_failed_start) {
  serve(3, {.min_ranks = 2});
  EXPECT_THAT(start_failed({2}), ElementsAre("left out 2 for 1"));
  states->on_attempt_ended(now);
  EXPECT_THAT(gather(), ElementsAre("start 0 1"));
  EXPECT_THAT(pass(seconds{59}, {0, 1, 2}), IsEmpty());
  EXPECT_THAT(states->usable(), ElementsAre(0u, 1u));
  EXPECT_THAT(pass(seconds{1}, {0, 1, 2}), IsEmpty());
  EXPECT_THAT(states->usable(), ElementsAre(0u, 1u, 2u));
  states->on_attempt_started({0, 1, 2});
  EXPECT_THAT(start_failed({2}), ElementsAre("left out 2 for 2"));
  // Once it has made progress, the pauses begin again.
  states->on_progress();
  EXPECT_THAT(start_failed({2}), ElementsAre("left out 2 for 1"));
}

TEST_F(host_states_test, another_agent_of_a_host_is_not_left_out) {
  serve(3, {.min_ranks = 2});
  EXPECT_THAT(start_failed({1}), ElementsAre("left out 1 for 1"));
  states->on_gone(1, 1, "lost", now);
  hello(1, 2);
  EXPECT_THAT(states->usable(), ElementsAre(0u, 1u, 2u));
}

// A lost host may be back before the ranks of the others have ended.
TEST_F(host_states_test, an_agent_that_has_come_since_is_not_left_out) {
  serve(3, {.min_ranks = 2});
  states->on_gone(1, 1, "lost", now);
  hello(1, 2);
  EXPECT_THAT(start_failed({1, 2}), ElementsAre("left out 2 for 1"));
  EXPECT_THAT(states->usable(), ElementsAre(0u, 1u));
}

TEST_F(host_states_test, HS_5_leaves_out_no_host_that_is_needed) {
  serve(3);
  EXPECT_THAT(start_failed({1}), IsEmpty()) << "a run of a fixed size";
  serve(3, {.min_ranks = 2});
  EXPECT_THAT(start_failed({1, 2}), IsEmpty()) << "too few are left";
  EXPECT_THAT(start_failed({0, 2}), IsEmpty()) << "the driver's host, too";
  EXPECT_THAT(states->usable(), ElementsAre(0u, 1u, 2u));
}

TEST_F(host_states_test, HS_6_leaves_only_a_new_host_out_for_failed_loops) {
  serve(3, {.min_ranks = 2});
  EXPECT_THAT(loops_failed({2}), IsEmpty()) << "the program may be the cause";
  states->on_progress();
  EXPECT_THAT(loops_failed({2}), IsEmpty()) << "its loops have worked";
  states->on_gone(2, 1, "lost", now);
  hello(2, 2);
  EXPECT_THAT(loops_failed({2}), IsEmpty()) << "its new agent had no ranks";
  states->on_attempt_started({0, 1, 2});
  EXPECT_THAT(loops_failed({1, 2}), IsEmpty()) << "one fails on another, too";
  EXPECT_THAT(loops_failed({2}), ElementsAre("left out 2 for 1"));
  EXPECT_THAT(states->usable(), ElementsAre(0u, 1u));
}

TEST_F(host_states_test, HS_6_leaves_no_host_out_where_all_are_new) {
  make(3, {.min_ranks = 1}, false);
  for (std::size_t i = 0; i < 3; ++i)
    hello(i, 1);
  states->on_attempt_started({1});
  states->on_progress();
  states->on_gone(1, 1, "lost", now);
  states->on_attempt_ended(now);
  states->on_attempt_started({0, 2});
  EXPECT_THAT(loops_failed({2}), IsEmpty());
}

TEST_F(host_states_test, a_long_failed_attempt_keeps_its_host_out_for_longer) {
  serve(3, {.min_ranks = 2});
  states->on_progress();
  states->on_gone(2, 1, "lost", now);
  hello(2, 2);
  states->on_attempt_started({0, 1, 2});
  EXPECT_THAT(loops_failed({2}, std::chrono::minutes{30}),
              ElementsAre("left out 2 for 300"));
}

TEST_F(host_states_test, the_drivers_standstill_keeps_no_host_out_for_longer) {
  for (auto is_noticed : {true, false}) {
    serve(3, {.min_ranks = 2});
    auto begun = now;
    pass(seconds{2}, {0, 1, 2});
    now += std::chrono::hours{1};
    if (is_noticed)
      states->check(now);
    EXPECT_THAT(to_lines(states->on_start_failed({2}, begun, now)),
                ElementsAre("left out 2 for 1"));
  }
}

// It may be silent for a moment while a report of its ranks is stored.
TEST_F(host_states_test, HS_6_knows_the_reports_of_a_silent_host) {
  serve(3, {.min_ranks = 2});
  EXPECT_THAT(pass(seconds{3}, {0, 1}), ElementsAre("suspected 2 after 3000"));
  states->on_progress();
  EXPECT_THAT(tick(2, 1), ElementsAre("answers 2"));
  EXPECT_THAT(loops_failed({2}), IsEmpty());
}

TEST_F(host_states_test, HS_5_starts_with_a_left_out_host_rather_than_not) {
  serve(3, {.join = seconds{30}, .min_ranks = 2});
  EXPECT_THAT(start_failed({2}), ElementsAre("left out 2 for 1"));
  states->on_attempt_ended(now);
  states->on_gone(1, 1, "lost", now);
  EXPECT_THAT(gather(), IsEmpty()) << "the lost host may come back in time";
  EXPECT_THAT(pass(seconds{29}, {0, 2}), ElementsAre("launch 1 as 4"));
  EXPECT_THAT(pass(seconds{1}, {0, 2}), ElementsAre("start 0 2"));
}

} // namespace
} // namespace troupe::internal::test
