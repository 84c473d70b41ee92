// How often hosts are launched, and after which waits.

#include "tests/unit/runtime/hosts/host_states_fixture.hpp"

namespace troupe::internal::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(host_states_test, repeats_a_launch_with_growing_waits) {
  make(1, {.join = seconds{100'000}, .max_relaunches = -1});
  gather();
  std::uint64_t launch = 1;
  for (auto wait : {1, 2, 4, 8, 16, 32, 60, 60, 60}) {
    EXPECT_THAT(launcher_ended(0, launch, "Connection timed out"), IsEmpty());
    EXPECT_EQ(state(0), host_state::expected);
    EXPECT_THAT(pass(seconds{wait - 1}), IsEmpty());
    EXPECT_THAT(pass(seconds{1}),
                ElementsAre(concat("launch 0 as ", ++launch)));
  }
}

TEST_F(host_states_test, jitter_takes_up_to_a_half_of_a_wait) {
  make(1);
  gather();
  jitter = 0.5;
  launcher_ended(0, 1, "Connection timed out");
  now += milliseconds{749};
  EXPECT_THAT(states->check(now), IsEmpty());
  now += milliseconds{1};
  EXPECT_THAT(to_lines(states->check(now)), ElementsAre("launch 0 as 2"));
}

TEST_F(host_states_test, a_first_launch_has_the_number_of_its_host) {
  make(3);
  hello(1, 1); // By itself.
  EXPECT_THAT(gather(), ElementsAre("launch 0 as 1", "launch 2 as 3"));
  launcher_ended(2, 3, "refused");
  states->on_gone(1, 1, "lost", now);
  EXPECT_THAT(pass(seconds{1}), ElementsAre("launch 1 as 2", "launch 2 as 4"));
  launcher_ended(1, 2, "refused");
  EXPECT_THAT(pass(seconds{2}), ElementsAre("launch 1 as 5"));
}

TEST_F(host_states_test, HS_3_gives_a_host_up_after_its_budget) {
  serve(2, {.max_relaunches = 2});
  states->on_gone(1, 1, "its connection broke", now);
  gather();
  EXPECT_THAT(pass(seconds{1}, {0}), ElementsAre("launch 1 as 3"));
  EXPECT_THAT(launcher_ended(1, 3, "refused"), IsEmpty());
  EXPECT_THAT(pass(seconds{2}, {0}), ElementsAre("launch 1 as 4"));
  EXPECT_THAT(launcher_ended(1, 4, "refused"),
              ElementsAre("given up 1: refused",
                          "fail spawn: 1 of 2 hosts is missing, and 2 are "
                          "needed:\n  b: refused (launched 3 times)"));
  EXPECT_EQ(state(1), host_state::given_up);
  // It may still come by itself.
  EXPECT_THAT(hello(1, 2), IsEmpty());
  EXPECT_EQ(state(1), host_state::ready);
}

// One that takes long to boot, as far as the user lets it.
TEST_F(host_states_test, HS_3_a_host_that_was_never_here_has_the_join_limit) {
  make(2, {.join = seconds{120}, .max_relaunches = 2});
  gather();
  hello(0, 1);
  std::uint64_t launch = 2;
  for (auto wait : {1, 2, 4, 8, 16, 32}) {
    EXPECT_THAT(launcher_ended(1, launch, "no route"), IsEmpty());
    EXPECT_THAT(pass(seconds{wait}, {0}),
                ElementsAre(concat("launch 1 as ", ++launch)));
  }
  EXPECT_THAT(launcher_ended(1, launch, "no route"), IsEmpty());
  EXPECT_THAT(pass(seconds{57}, {0}),
              ElementsAre("fail timeout: 1 of 2 hosts is missing after 120 s, "
                          "and 2 are needed:\n  b: no route (launched 7 "
                          "times)"));
}

TEST_F(host_states_test, HS_3_a_host_that_came_late_has_its_whole_budget) {
  make(2, {.max_relaunches = 2});
  gather();
  hello(0, 1);
  for (auto launch : {2u, 3u, 4u}) {
    launcher_ended(1, launch, "no route");
    pass(seconds{4}, {0});
  }
  launched(1, 5);
  EXPECT_THAT(hello(1, 1), ElementsAre("start 0 1"));
  states->on_attempt_started({0, 1});
  states->on_gone(1, 1, "no answer", now);
  EXPECT_EQ(state(1), host_state::lost);
  EXPECT_THAT(gather(), IsEmpty());
  EXPECT_THAT(pass(seconds{8}, {0}), ElementsAre("launch 1 as 6"));
}

// A run of weeks may lose the same host now and then.
TEST_F(host_states_test, HS_3_progress_renews_the_budget) {
  make(1, {.max_relaunches = 2});
  gather();
  std::uint64_t agent = 1;
  auto serve_again = [&] {
    hello(0, agent);
    gather();
    states->on_attempt_started({0});
  };
  auto lose = [&] {
    return to_lines(states->on_gone(0, agent++, "no answer", now));
  };
  for (int week = 0; week < 5; ++week) {
    serve_again();
    states->on_progress();
    lose();
    EXPECT_EQ(state(0), host_state::lost) << "week " << week;
    EXPECT_THAT(pass(seconds{1}), testing::SizeIs(1)) << "launched again";
  }
  // Without progress, the second launch in a row is the last one.
  serve_again();
  lose();
  EXPECT_THAT(pass(seconds{2}), testing::SizeIs(1));
  serve_again();
  EXPECT_THAT(lose(), testing::Contains("given up 0: no answer"));
}

TEST_F(host_states_test, HS_3_an_elastic_run_tries_again_after_a_long_pause) {
  make(2, {.max_relaunches = 0, .min_ranks = 1});
  gather();
  hello(0, 1);
  launcher_ended(1, 2, "no such host", false);
  std::uint64_t launch = 2;
  for (auto minutes : {10, 20, 40, 60, 60}) {
    EXPECT_EQ(state(1), host_state::given_up);
    EXPECT_THAT(gather(), ElementsAre("start 0")) << "it does not wait for it";
    EXPECT_THAT(pass(seconds{60 * minutes - 1}, {0}), IsEmpty());
    EXPECT_THAT(pass(seconds{1}, {0}),
                ElementsAre(concat("launch 1 as ", ++launch)));
    launcher_ended(1, launch, "no such host", false);
  }
  // Once it has made progress, the pauses begin again.
  hello(1, 1);
  EXPECT_THAT(gather(), ElementsAre("start 0 1"));
  states->on_attempt_started({0, 1});
  states->on_progress();
  auto lost = to_lines(states->on_gone(1, 1, "no answer", now));
  EXPECT_THAT(lost, testing::Contains("given up 1 for 10: no answer"));
}

TEST_F(host_states_test, does_not_repeat_what_cannot_help) {
  make(2);
  gather();
  EXPECT_THAT(launcher_ended(1, 2, "exit code 78", false),
              testing::Contains("given up 1: exit code 78"));
  make(2);
  gather();
  launched(1, 2);
  EXPECT_THAT(to_lines(states->on_refused(1, "its build id differs", now)),
              ElementsAre("end launcher 2 of 1",
                          "given up 1: its build id differs",
                          HasSubstr("  b: its build id differs")));
}

TEST_F(host_states_test, a_host_may_lack_a_part_of_its_room_after_each_boot) {
  serve(2);
  states->on_gone(1, 1, "its connection broke", now);
  gather();
  EXPECT_THAT(pass(seconds{1}, {0}), ElementsAre("launch 1 as 3"));
  EXPECT_TRUE(states->may_have_more(1, 2, {0, {}}, now));
  launcher_ended(1, 3, "its connection broke");
  EXPECT_THAT(pass(seconds{40}, {0}), ElementsAre("launch 1 as 4"));
  EXPECT_TRUE(states->may_have_more(1, 3, {0, {}}, now));
  pass(seconds{29}, {0});
  EXPECT_TRUE(states->may_have_more(1, 3, {0, {}}, now));
  pass(seconds{1}, {0});
  EXPECT_FALSE(states->may_have_more(1, 3, {0, {}}, now));
}

TEST_F(host_states_test, a_host_may_lack_its_mounts_after_a_boot) {
  serve(2);
  states->on_gone(1, 1, "its connection broke", now);
  gather();
  std::uint64_t launch = 3;
  EXPECT_THAT(pass(seconds{1}, {0}), ElementsAre("launch 1 as 3"));
  for (auto wait : {2, 4, 8}) {
    EXPECT_THAT(launcher_ended(1, launch, "exit code 78", false), IsEmpty());
    EXPECT_THAT(pass(seconds{wait}, {0}),
                ElementsAre(concat("launch 1 as ", ++launch)));
  }
  launched(1, launch);
  EXPECT_THAT(hello(1, 2), ElementsAre("start 0 1"));
}

TEST_F(host_states_test, launches_again_if_an_agent_does_not_connect) {
  make(1, {.join = seconds{10}});
  states->gather(now, seconds{100});
  pass(seconds{5}); // Waits for a free launcher.
  launched(0, 1);
  EXPECT_THAT(pass(seconds{9}), IsEmpty());
  EXPECT_THAT(pass(seconds{2}),
              ElementsAre("end launcher 1 of 0", "launch 0 as 2"));
  EXPECT_THAT(launcher_ended(0, 1, "ended by signal"), IsEmpty());
  EXPECT_EQ(state(0), host_state::launching);
}

TEST_F(host_states_test, an_agent_outlives_its_launcher) {
  serve(2);
  EXPECT_THAT(launcher_ended(1, 2, "killed"), IsEmpty());
  EXPECT_THAT(pass(seconds{60}, {0, 1}), IsEmpty());
  EXPECT_THAT(hello(1, 1), IsEmpty());
  EXPECT_EQ(state(1), host_state::serving);
}

TEST_F(host_states_test, waits_are_short_again_after_progress) {
  auto lose_and_wait = [this](std::uint64_t incarnation) {
    pass(seconds{10});
    int waited = 1;
    while (pass(seconds{1}).empty())
      ++waited;
    hello(0, incarnation + 1);
    states->on_attempt_started({0});
    return waited;
  };
  serve(1);
  EXPECT_EQ(lose_and_wait(1), 1);
  EXPECT_EQ(lose_and_wait(2), 2);
  EXPECT_EQ(lose_and_wait(3), 4);
  states->on_progress();
  EXPECT_EQ(lose_and_wait(4), 1);
}

} // namespace
} // namespace troupe::internal::test
