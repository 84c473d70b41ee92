// The worker group with agents that are launched.

#include <csignal>

#include "tests/actors/joining_host_fixture.hpp"

namespace troupe::internal::test {

using testing::HasSubstr;
using testing::Not;

/// A host with one rank beside the driver's, on which an agent is launched.
class launched_host_test : public joining_host_test {
protected:
  launched_host_test() {
    worker_group_args args;
    args.launches.begin = [this](std::size_t, std::uint64_t launch) {
      launched.push_back(launch);
    };
    args.launches.arrived = [this](std::uint64_t launch) {
      arrived.push_back(launch);
    };
    args.launches.end = [this](std::uint64_t launch) {
      ended.push_back(launch);
    };
    spawn_group({{{"", 0, 1, 1}, {"h1", 1, 1, 1}},
                 own_facts(),
                 host_limits{.join = ms{5000}},
                 "10.0.0.1 port 7",
                 [] { return 0.0; }},
                std::move(args));
    start();
  }

  template <class Message>
  void tell(Message x) {
    send_anonymous(ranks.group, std::move(x));
    system.settle();
  }

  std::vector<std::uint64_t> launched;
  std::vector<std::uint64_t> arrived;
  std::vector<std::uint64_t> ended;
};

TEST_F(launched_host_test, an_attempt_starts_once_the_launched_agent_is_here) {
  ASSERT_EQ(launched.size(), 1u);
  tell(agent_launched{launched[0]});
  join(1, {}, launched[0]);
  EXPECT_EQ(arrived, launched);
  EXPECT_EQ(elsewhere->launched.size(), 1u);
}

TEST_F(launched_host_test, a_launch_that_failed_is_shown_and_repeated) {
  tell(launcher_ended{launched[0], "no route", true});
  EXPECT_THAT(notes, HasSubstr("host h1: no route"));
  pass_seconds(3);
  ASSERT_EQ(launched.size(), 2u);
  join(1, {}, launched[1]);
  EXPECT_EQ(elsewhere->launched.size(), 1u);
}

TEST_F(launched_host_test, what_a_launcher_says_that_waits_is_shown) {
  tell(agent_launched{launched[0]});
  tell(launcher_said{launched[0], "the node is busy"});
  EXPECT_THAT(notes, HasSubstr("host h1 is waited for: the node is busy"));
  pass_seconds(6);
  ASSERT_EQ(record->failed.size(), 1u);
  EXPECT_THAT(record->failed[0].reason.message,
              HasSubstr("its launcher says: the node is busy"));
}

TEST_F(launched_host_test, a_launch_that_cannot_help_ends_the_run) {
  tell(launcher_ended{launched[0], "no such file", false});
  ASSERT_EQ(record->failed.size(), 1u);
  EXPECT_TRUE(record->failed[0].is_final);
  EXPECT_THAT(record->failed[0].reason.message, HasSubstr("h1: no such file"));
}

// It is not gone before its grace is over.
TEST_F(launched_host_test, says_when_a_host_that_left_is_launched_again) {
  played_ranks theirs{system};
  join(1, {}, launched[0]);
  play(theirs);
  ranks.rise(0);
  theirs.rise(1);
  notice(30'000);
  lose();
  ranks.kill(0, SIGKILL);
  pass_seconds(2);
  start(4);
  // 20 s and some.
  EXPECT_THAT(notes, HasSubstr("host h1 is launched again in 2"));
  EXPECT_EQ(launched.size(), 1u);
  pass_seconds(30);
  EXPECT_EQ(launched.size(), 2u);
}

TEST_F(launched_host_test, a_failure_has_what_the_launcher_of_a_host_said) {
  join(1, {}, launched[0]);
  tell(launcher_ended{launched[0], "oom-kill (exit code 137)", true});
  EXPECT_THAT(notes, Not(HasSubstr("oom-kill")));
  lose();
  ranks.exit(0);
  EXPECT_THAT(failure_of(1).what,
              HasSubstr("the connection to its agent ended; oom-kill (exit"));
}

TEST_F(launched_host_test, a_lost_host_is_launched_for_the_next_attempt) {
  join(1, {}, launched[0]);
  lose();
  EXPECT_EQ(ended, launched);
  ranks.exit(0);
  pass_seconds(2);
  start(4);
  pass_seconds(2);
  ASSERT_EQ(launched.size(), 2u);
  join(2, {}, launched[1]);
  EXPECT_EQ(elsewhere->launched.size(), 1u);
}

} // namespace troupe::internal::test
