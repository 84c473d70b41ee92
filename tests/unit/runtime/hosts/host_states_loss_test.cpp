// Hosts that fall silent, are lost or leave.

#include "tests/unit/runtime/hosts/host_states_fixture.hpp"

namespace troupe::internal::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(host_states_test, suspects_a_host_that_misses_three_ticks) {
  serve(2);
  EXPECT_THAT(pass(seconds{2}, {0}), IsEmpty());
  EXPECT_EQ(state(1), host_state::serving);
  EXPECT_THAT(pass(seconds{1}, {0}), ElementsAre("suspected 1 after 3000"));
  EXPECT_EQ(state(1), host_state::suspect);
  EXPECT_THAT(states->usable(), ElementsAre(0));
  EXPECT_THAT(pass(seconds{1}, {0}), IsEmpty()) << "it was said";
  EXPECT_THAT(tick(1, 1), ElementsAre("answers 1"));
  EXPECT_EQ(state(1), host_state::serving);
}

TEST_F(host_states_test, loses_a_host_after_the_timeout_and_launches_it_again) {
  serve(2);
  EXPECT_THAT(pass(seconds{9}, {0}), ElementsAre("suspected 1 after 3000"));
  EXPECT_THAT(pass(seconds{1}, {0}),
              ElementsAre("fence 1 of 1", "end launcher 2 of 1",
                          "lost 1: it did not answer for 10 s"));
  EXPECT_EQ(state(1), host_state::lost);
  EXPECT_THAT(pass(seconds{1}, {0}), ElementsAre("launch 1 as 3"));
  EXPECT_THAT(hello(1, 2), IsEmpty());
  EXPECT_EQ(state(1), host_state::ready); // For the next attempt.
}

// The connection to an agent that was killed may seem to be broken for a while.
TEST_F(host_states_test, a_launcher_that_ended_first_tells_why_a_host_is_lost) {
  serve(2);
  EXPECT_THAT(launcher_ended(1, 2, "oom-kill (exit code 137)"), IsEmpty());
  EXPECT_THAT(to_lines(states->on_gone(1, 1, "its connection ended", now)),
              ElementsAre("fence 1 of 1", "lost 1: its connection ended; "
                                          "oom-kill (exit code 137)"));
  EXPECT_THAT(pass(seconds{1}, {0}), ElementsAre("launch 1 as 3"));
  hello(1, 2);
  EXPECT_THAT(to_lines(states->on_gone(1, 2, "its connection ended", now)),
              testing::Contains("lost 1: its connection ended"));
}

TEST_F(host_states_test,
       a_launcher_tells_nothing_of_an_agent_that_outlived_it) {
  serve(2);
  launcher_ended(1, 2, "Connection reset by peer (exit code 255)");
  pass(seconds{1}, {0, 1});
  EXPECT_THAT(to_lines(states->on_gone(1, 1, "its connection ended", now)),
              testing::Contains("lost 1: its connection ended"));
}

TEST_F(host_states_test, HS_1_a_later_agent_comes_once_the_earlier_is_lost) {
  serve(2);
  EXPECT_THAT(hello(1, 2), ElementsAre("fence 2 of 1"));
  EXPECT_EQ(state(1), host_state::serving);
  pass(seconds{10}, {0});
  EXPECT_THAT(hello(1, 2), IsEmpty());
  EXPECT_EQ(state(1), host_state::ready);
  // The first one connects again, and what it sent still arrives.
  EXPECT_THAT(hello(1, 1), ElementsAre("fence 1 of 1"));
  EXPECT_THAT(tick(1, 1), ElementsAre("fence 1 of 1"));
  EXPECT_EQ(states->hosts()[1].incarnation, 2u);
  EXPECT_EQ(state(1), host_state::ready);
}

TEST_F(host_states_test, HS_1_a_frozen_host_stays_fenced_after_its_thaw) {
  serve(2);
  pass(seconds{10}, {0});
  EXPECT_THAT(tick(1, 1), ElementsAre("fence 1 of 1"));
  EXPECT_THAT(hello(1, 1), ElementsAre("fence 1 of 1"));
  EXPECT_EQ(state(1), host_state::lost);
}

TEST_F(host_states_test, a_draining_host_leaves_with_the_attempt) {
  serve(2, {.min_ranks = 1});
  EXPECT_THAT(states->on_draining(1, 1, seconds{30}, now), IsEmpty());
  EXPECT_EQ(state(1), host_state::draining);
  EXPECT_THAT(to_lines(states->on_attempt_ended(now)),
              ElementsAre("fence 1 of 1", "end launcher 2 of 1"));
  EXPECT_EQ(state(1), host_state::left);
}

TEST_F(host_states_test, a_second_notice_of_a_host_ends_no_attempt) {
  serve(2, {.min_ranks = 1});
  for (auto grace : {seconds{30}, seconds{20}}) {
    EXPECT_THAT(states->on_draining(1, 1, grace, now), IsEmpty());
    EXPECT_EQ(state(1), host_state::draining);
  }
  EXPECT_THAT(to_lines(states->on_attempt_ended(now)),
              ElementsAre("fence 1 of 1", "end launcher 2 of 1"));
}

TEST_F(host_states_test, a_host_that_left_is_launched_once_it_may_be_back) {
  serve(2);
  states->on_draining(1, 1, seconds{30}, now);
  states->on_attempt_ended(now);
  EXPECT_THAT(gather(), IsEmpty());
  EXPECT_THAT(pass(seconds{29}, {0}), IsEmpty());
  EXPECT_THAT(pass(seconds{1}, {0}), ElementsAre("launch 1 as 3"));
}

// The grace of its notice may be longer than the limit on joining.
TEST_F(host_states_test, a_host_that_left_has_the_join_limit_once_it_is_gone) {
  serve(2, {.join = seconds{10}, .max_relaunches = 1});
  states->on_draining(1, 1, seconds{60}, now);
  states->on_attempt_ended(now);
  EXPECT_THAT(gather(), IsEmpty());
  EXPECT_THAT(pass(seconds{59}, {0}), IsEmpty());
  EXPECT_THAT(pass(seconds{1}, {0}), ElementsAre("launch 1 as 3"));
  launched(1, 3);
  EXPECT_THAT(pass(seconds{9}, {0}), IsEmpty());
  EXPECT_EQ(hello(1, 2).back(), "start 0 1");
}

TEST_F(host_states_test, a_host_that_left_and_does_not_come_back_is_missing) {
  make(2, {.join = seconds{10}}, false);
  hello(0, 1);
  hello(1, 1);
  states->on_draining(1, 1, seconds{60}, now);
  EXPECT_THAT(gather(), IsEmpty());
  EXPECT_THAT(pass(seconds{69}, {0}), IsEmpty());
  EXPECT_THAT(pass(seconds{1}, {0}),
              ElementsAre(HasSubstr("1 of 2 hosts is missing after 70 s")));
}

TEST_F(host_states_test, enough_hosts_do_not_wait_for_one_that_leaves) {
  make(2, {.join = seconds{10}, .min_ranks = 1}, false);
  hello(0, 1);
  hello(1, 1);
  states->on_draining(1, 1, seconds{60}, now);
  EXPECT_THAT(gather(), IsEmpty());
  EXPECT_THAT(pass(seconds{10}, {0}), ElementsAre("start 0"));
}

TEST_F(host_states_test, a_draining_host_that_is_lost_has_left) {
  serve(2);
  states->on_draining(1, 1, seconds{30}, now);
  EXPECT_THAT(pass(seconds{10}, {0}),
              ElementsAre("suspected 1 after 3000", "fence 1 of 1",
                          "end launcher 2 of 1",
                          "lost 1: it did not answer for 10 s"));
  EXPECT_EQ(state(1), host_state::left);
}

TEST_F(host_states_test, a_host_without_an_attempt_leaves_at_once) {
  make(2, {}, false);
  hello(1, 1);
  EXPECT_THAT(to_lines(states->on_draining(1, 1, seconds{30}, now)),
              ElementsAre("fence 1 of 1"));
  hello(0, 1);
  EXPECT_THAT(gather(), IsEmpty());
  // A new pod of the same index.
  EXPECT_THAT(hello(1, 2), ElementsAre("start 0 1"));
}

TEST_F(host_states_test, does_not_blame_hosts_for_its_own_standstill) {
  serve(2);
  pass(seconds{2}, {0, 1});
  now += seconds{3600}; // Stopped by a debugger.
  EXPECT_THAT(states->check(now), IsEmpty());
  EXPECT_EQ(state(0), host_state::serving);
  make(1, {}, false);
  gather();
  pass(seconds{1});
  now += seconds{3600};
  EXPECT_THAT(states->check(now), IsEmpty());
  EXPECT_THAT(pass(seconds{118}), IsEmpty());
  EXPECT_THAT(pass(seconds{1}), ElementsAre(HasSubstr("fail timeout")));
}

TEST_F(host_states_test, a_standstill_moves_no_last_sign) {
  auto last_sign = [this] {
    for (auto& decision : states->on_gone(0, 1, "its power failed", now))
      if (auto lost = std::get_if<host_lost>(&decision))
        return lost->last_sign;
    return host_states::time_point{};
  };
  for (auto has_waiting_tick : {false, true}) {
    serve(1);
    pass(seconds{2}, {0});
    now += milliseconds{500};
    tick(0, 1);
    auto latest = now;
    now += seconds{60};
    if (has_waiting_tick) // It was sent a second after the one before.
      tick(0, 1);
    states->check(now);
    now += milliseconds{100};
    EXPECT_EQ(last_sign(), latest + seconds{has_waiting_tick ? 1 : 0});
  }
}

TEST_F(host_states_test, remembers_for_a_minute_how_long_it_stood_still) {
  serve(2);
  pass(seconds{2}, {0, 1});
  EXPECT_EQ(states->standstill_before(now), seconds{0});
  now += seconds{90};
  EXPECT_EQ(states->standstill_before(now), seconds{90})
    << "what came may be handled before the check that is late";
  EXPECT_THAT(states->check(now), IsEmpty());
  EXPECT_EQ(states->standstill_before(now), seconds{90});
  now += seconds{5};
  EXPECT_EQ(states->standstill_before(now), seconds{90})
    << "what waited longer may still be there";
  EXPECT_THAT(states->check(now), IsEmpty());
  EXPECT_EQ(states->standstill_before(now), seconds{90});
  pass(seconds{59}, {0, 1});
  EXPECT_EQ(states->standstill_before(now), seconds{90});
  pass(seconds{1}, {0, 1});
  EXPECT_EQ(states->standstill_before(now), seconds{0});
}

} // namespace
} // namespace troupe::internal::test
