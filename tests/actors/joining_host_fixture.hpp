#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/actors/worker_group_fixture.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/unix_time.hpp"

namespace troupe::internal::test {

/// A host with one rank beside the driver's, whose agent is not here yet.
class joining_host_test : public worker_group_test {
protected:
  explicit joining_host_test(std::string network_interface = {}) {
    ranks.attempt = 3;
    plan.network_interface = std::move(network_interface);
    driver = system.spawn(recorded_driver, record);
    spawn_group({{{"", 0, 1, 1}, {"", 1, 1, 1}},
                 own_facts(plan.network_interface),
                 host_limits{.join = ms{1500}},
                 "10.0.0.1 port 7"});
  }

  /// Of the driver's program, which has chosen its address if it was given a
  /// network.
  static agent_facts own_facts(const std::string& network = {}) {
    agent_facts own;
    own.incarnation = 100;
    own.host = "h0";
    own.boot = "b0";
    if (!network.empty())
      own.address = "10.1.0.1";
    return own;
  }

  /// Spawns the group with *plan* on *hosts*, in place of an earlier one.
  void spawn_group(host_roster hosts, worker_group_args args = {}) {
    if (ranks.group) {
      caf::anon_send_exit(ranks.group, caf::exit_reason::user_shutdown);
      system.settle();
    }
    ranks.agent = system.spawn(host_agent, host_agent_args{ranks.launcher});
    args.agent = ranks.agent;
    args.plan = plan;
    args.token = [] { return std::uint64_t{17}; };
    args.note = [this](std::string text) { notes += text + '\n'; };
    args.journal = [this](std::string_view kind, const metrics& fields) {
      events.push_back(concat(kind, ' ', to_string(fields)));
    };
    args.abandon = [this](const std::string& host) {
      abandoned.push_back(host);
    };
    args.cut_off = [this](const host_agent_actor& agent) {
      cut_off.push_back(agent);
    };
    ranks.group = system.spawn(worker_group, std::move(args), std::move(hosts));
  }

  /// Passes time in which the other host sends its ticks.
  void pass_alive(int seconds, std::uint64_t incarnation) {
    for (int i = 0; i < seconds; ++i) {
      pass_seconds(1);
      EXPECT_TRUE(tick(incarnation)->value);
    }
  }

  std::shared_ptr<answer<void>> tick(std::uint64_t incarnation,
                                     std::uint32_t host = 1) {
    return system.ask<void>(ranks.group, host_tick{host, incarnation});
  }

  void start(std::uint64_t attempt = 3, std::uint64_t first_report = 0) {
    send_anonymous(ranks.group, start_attempt{attempt, {}, first_report},
                   driver);
    system.settle();
  }

  /// What an agent of another host says first.
  agent_hello hello_of(std::uint64_t incarnation,
                       std::uint64_t launch = 0) const {
    agent_hello hello;
    hello.facts.incarnation = incarnation;
    hello.facts.host = host;
    hello.facts.boot = "b0";
    hello.facts.launch = launch;
    hello.facts.gpus = gpus;
    hello.facts.clock_ms = unix_ms(clock);
    hello.facts.address = "10.0.0.2";
    hello.facts.driver_address = "10.0.0.1";
    return hello;
  }

  /// Another host's agent says hello and, without a problem, has ranks.
  host_accepted join(std::uint64_t incarnation, error problem = {},
                     std::uint64_t launch = 0) {
    elsewhere = std::make_shared<recorded_launcher>();
    other = system.spawn(host_agent, host_agent_args{elsewhere});
    auto answer =
      system.ask<host_accepted>(ranks.group, hello_of(incarnation, launch),
                                caf::actor_cast<caf::strong_actor_ptr>(other));
    if (!answer->value) {
      ADD_FAILURE() << answer->failure.message;
      return {};
    }
    checked = system.ask<void>(
      ranks.group, host_checked{answer->value->node_rank, incarnation,
                                std::move(problem), address});
    return *answer->value;
  }

  /// The ranks of the agent that has joined last are played by *theirs*.
  void play(played_ranks& theirs) {
    theirs.attempt = ranks.attempt;
    theirs.agent = other;
    theirs.launcher = elsewhere;
  }

  /// An attempt with one rank on each host runs.
  void start_with(played_ranks& theirs) {
    start();
    join(1);
    play(theirs);
    ranks.rise(0);
    theirs.rise(1);
  }

  /// The other host is about to leave.
  void notice(std::int64_t grace_ms, std::uint64_t incarnation = 1) {
    send_anonymous(ranks.group,
                   host_notice{1, incarnation, "SIGTERM", grace_ms});
    system.settle();
  }

  /// An attempt with one rank on each host runs as the other host is about to
  /// leave.
  void start_leaving(played_ranks& theirs) {
    start_with(theirs);
    notice(20'000);
  }

  /// The host of *theirs* is about to leave, and no loop leaves by itself.
  void expect_ended_for(played_ranks& theirs) {
    notice(20'000);
    pass_alive(15, 1);
    EXPECT_TRUE(ranks.asked_to_end(0));
    EXPECT_TRUE(theirs.asked_to_end(1));
    ranks.obey(0);
    theirs.obey(1);
    ASSERT_EQ(record->ended.size(), 1u);
    EXPECT_NE(record->ended[0].left_for, "");
  }

  /// The only attempt that ended has done so by itself.
  void expect_finished() {
    ASSERT_EQ(record->ended.size(), 1u);
    EXPECT_FALSE(record->ended[0].stopped);
    EXPECT_EQ(record->ended[0].left_for, "");
  }

  /// *rank* failed in the way *what*, and that does not count, since the host
  /// h1 is lost or leaves.
  void expect_excused(int rank, kind what) {
    EXPECT_EQ(failure_of(rank).kind, what);
    EXPECT_NE(record->failed.at(0).left_for, "");
  }

  /// The end of the only attempt that failed counts as a failure.
  void expect_counts() {
    ASSERT_EQ(record->failed.size(), 1u);
    EXPECT_EQ(record->failed[0].left_for, "");
  }

  void lose() { lose(other); }

  void lose(const host_agent_actor& agent) {
    caf::anon_send_exit(agent, caf::exit_reason::remote_link_unreachable);
    system.settle();
  }

  std::string host = "h1"; ///< As the agent that joins calls it.
  std::string address;     ///< On the interface that was asked for.
  int gpus = 0;            ///< Of the next host that joins.
  std::shared_ptr<recorded_launcher> elsewhere;
  host_agent_actor other;
  std::shared_ptr<answer<void>> checked;
  std::chrono::system_clock::time_point clock =
    std::chrono::system_clock::now(); ///< Of the other host.
  std::string notes;
  std::vector<std::string> events;
  std::vector<std::string> abandoned;
  std::vector<host_agent_actor> cut_off;
};

} // namespace troupe::internal::test
