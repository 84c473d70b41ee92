// The worker group as the agents of other hosts come and go.

#include "tests/actors/worker_group_fixture.hpp"
#include "troupe/actors/protocol/error_code.hpp"

namespace troupe::internal::test {

using testing::ElementsAre;
using testing::HasSubstr;

/// A host with one rank beside the driver's, whose agent is not here yet.
class joining_host_test : public worker_group_test {
protected:
  joining_host_test() {
    ranks.attempt = 3;
    ranks.agent = system.spawn(host_agent, host_agent_args{ranks.launcher});
    agent_facts own;
    own.incarnation = 100;
    own.host = "h0";
    worker_group_args args;
    args.hosts = {{ranks.agent, 0, 1}, {{}, 1, 1}};
    args.plan = plan;
    args.roster = std::make_shared<host_roster>(
      2, own, host_limits{.join = ms{1500}}, "10.0.0.1 port 7");
    args.token = [] { return std::uint64_t{17}; };
    ranks.group = system.spawn(worker_group, std::move(args));
    driver = system.spawn(recorded_driver, record);
  }

  void start() {
    send_anonymous(ranks.group, start_attempt{3, {}, 0}, driver);
    system.settle();
  }

  /// Another host's agent says hello and, without a problem, has ranks.
  host_accepted join(std::uint64_t incarnation, error problem = {},
                     std::uint64_t launch = 0) {
    elsewhere = std::make_shared<recorded_launcher>();
    other = system.spawn(host_agent, host_agent_args{elsewhere});
    agent_hello hello;
    hello.facts.incarnation = incarnation;
    hello.facts.host = "h1";
    hello.facts.launch = launch;
    hello.facts.address = "10.0.0.2";
    hello.facts.driver_address = "10.0.0.1";
    auto answer = system.ask<host_accepted>(
      ranks.group, hello, caf::actor_cast<caf::strong_actor_ptr>(other));
    if (!answer->value) {
      ADD_FAILURE() << answer->failure.message;
      return {};
    }
    checked = system.ask<void>(
      ranks.group,
      host_checked{answer->value->node_rank, incarnation, std::move(problem)});
    return *answer->value;
  }

  void lose() {
    caf::anon_send_exit(other, caf::exit_reason::remote_link_unreachable);
    system.settle();
  }

  std::shared_ptr<recorded_launcher> elsewhere;
  host_agent_actor other;
  std::shared_ptr<answer<void>> checked;
};

TEST_F(joining_host_test, ranks_start_once_all_hosts_are_here) {
  start();
  EXPECT_TRUE(ranks.launcher->launched.empty());
  auto settings = join(1);
  EXPECT_EQ(settings.node_rank, 1u);
  EXPECT_EQ(settings.run_path, plan.run_path);
  EXPECT_EQ(settings.token, 17u);
  ASSERT_EQ(ranks.launcher->launched.size(), 1u);
  ASSERT_EQ(elsewhere->launched.size(), 1u);
  EXPECT_EQ(elsewhere->launched[0].rank, 1);
}

TEST_F(joining_host_test, ranks_learn_the_names_and_addresses_of_their_hosts) {
  start();
  join(1);
  ASSERT_EQ(ranks.launcher->prepared.size(), 1u);
  EXPECT_EQ(ranks.launcher->prepared[0].host, "h0");
  EXPECT_EQ(ranks.launcher->prepared[0].host_address, "10.0.0.1");
  ASSERT_EQ(elsewhere->prepared.size(), 1u);
  EXPECT_EQ(elsewhere->prepared[0].host, "h1");
  EXPECT_EQ(elsewhere->prepared[0].host_address, "10.0.0.2");
}

TEST_F(joining_host_test, a_host_that_is_missing_ends_the_run) {
  start();
  pass_seconds(3);
  ASSERT_EQ(record->failed.size(), 1u);
  EXPECT_TRUE(record->failed[0].is_final);
  EXPECT_FALSE(record->failed[0].started);
  EXPECT_THAT(record->failed[0].reason.message,
              HasSubstr("host 1: no agent has connected to 10.0.0.1 port 7"));
}

TEST_F(joining_host_test, a_host_with_a_problem_has_no_ranks) {
  start();
  join(1, {ec::storage, "read-only"});
  EXPECT_TRUE(ranks.launcher->launched.empty());
  join(2);
  EXPECT_EQ(ranks.launcher->launched.size(), 1u);
}

TEST_F(joining_host_test, a_stop_ends_the_wait_for_hosts) {
  start();
  stop();
  EXPECT_EQ(record->ended.size(), 1u);
  join(1);
  pass_seconds(3);
  EXPECT_TRUE(ranks.launcher->launched.empty());
  EXPECT_TRUE(record->failed.empty());
}

TEST_F(joining_host_test, a_lost_host_ends_the_attempt_and_the_next_waits) {
  start();
  join(1);
  lose();
  ranks.exit(0);
  EXPECT_EQ(failure_of(1).kind, kind::lost);
  EXPECT_THAT(failure_of(1).what, HasSubstr("host h1 is lost"));
  send_anonymous(ranks.group, start_attempt{4, {}, 0}, driver);
  system.settle();
  EXPECT_EQ(ranks.launcher->launched.size(), 1u);
  join(2);
  EXPECT_EQ(ranks.launcher->launched.size(), 2u);
  EXPECT_EQ(elsewhere->launched.size(), 1u);
}

TEST_F(joining_host_test, a_host_may_come_back_before_the_attempt_is_over) {
  start();
  join(1);
  lose();
  join(2);
  EXPECT_TRUE(elsewhere->launched.empty());
  ranks.exit(0);
  send_anonymous(ranks.group, start_attempt{4, {}, 0}, driver);
  system.settle();
  EXPECT_EQ(elsewhere->launched.size(), 1u);
}

TEST_F(joining_host_test, a_group_without_places_takes_no_hosts) {
  ranks.spawn_group(plan);
  auto answer = system.ask<host_accepted>(
    ranks.group, agent_hello{},
    caf::actor_cast<caf::strong_actor_ptr>(ranks.agent));
  EXPECT_EQ(answer->failure.code, ec::stopped);
}

TEST_F(joining_host_test, agents_end_with_the_group) {
  join(1);
  caf::anon_send_exit(ranks.group, caf::exit_reason::user_shutdown);
  system.settle();
  EXPECT_EQ(system.ask<stacks_shown>(other, show_stacks{})->value,
            std::nullopt);
}

/// A host with one rank beside the driver's, on which an agent is launched.
class launched_host_test : public joining_host_test {
protected:
  launched_host_test() {
    caf::anon_send_exit(ranks.group, caf::exit_reason::user_shutdown);
    system.settle();
    ranks.agent = system.spawn(host_agent, host_agent_args{ranks.launcher});
    agent_facts own;
    own.incarnation = 100;
    own.host = "h0";
    worker_group_args args;
    args.hosts.resize(2);
    args.hosts[0].agent = ranks.agent;
    args.hosts[1].first_rank = 1;
    args.plan = plan;
    args.roster = std::make_shared<host_roster>(
      std::vector<std::string>{"h1"}, own, host_limits{.join = ms{5000}},
      "10.0.0.1 port 7", [] { return 0.0; });
    args.launches.begin = [this](std::size_t, std::uint64_t launch) {
      launched.push_back(launch);
    };
    args.launches.arrived = [this](std::uint64_t launch) {
      arrived.push_back(launch);
    };
    args.launches.end = [this](std::uint64_t launch) {
      ended.push_back(launch);
    };
    args.note = [this](std::string text) { notes += text + '\n'; };
    ranks.group = system.spawn(worker_group, std::move(args));
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
  std::string notes;
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

TEST_F(launched_host_test, a_launch_that_cannot_help_ends_the_run) {
  tell(launcher_ended{launched[0], "no such file", false});
  ASSERT_EQ(record->failed.size(), 1u);
  EXPECT_TRUE(record->failed[0].is_final);
  EXPECT_THAT(record->failed[0].reason.message, HasSubstr("h1: no such file"));
}

TEST_F(launched_host_test, a_lost_host_is_launched_for_the_next_attempt) {
  join(1, {}, launched[0]);
  lose();
  EXPECT_EQ(ended, launched);
  ranks.exit(0);
  pass_seconds(2);
  send_anonymous(ranks.group, start_attempt{4, {}, 0}, driver);
  system.settle();
  pass_seconds(2);
  ASSERT_EQ(launched.size(), 2u);
  join(2, {}, launched[1]);
  EXPECT_EQ(elsewhere->launched.size(), 1u);
}

} // namespace troupe::internal::test
