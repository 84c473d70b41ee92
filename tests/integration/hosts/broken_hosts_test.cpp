// Runs on several hosts that break, or whose network does, or whose clocks
// differ.

#include <csignal>
#include <cstdlib>
#include <optional>
#include <regex>
#include <thread>
#include <utility>

#include <gmock/gmock.h>

#include "tests/integration/hosts/many_hosts_fixture.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/tcp.hpp"

namespace troupe::internal::test {

namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

/// An agent that reaches its driver by a relay of this process.
class relayed_connection_test : public many_hosts_test {
protected:
  /// Starts two ranks, one at the agent, which wait.
  void start_both() {
    driver_ = start_driver(2, 1, 1, 120'000, 30);
    auto own = ticket_of_driver();
    relay_.emplace(own.port);
    own.addresses = {"127.0.0.1"};
    own.port = relay_->port();
    agent_ = start_agent_with(0, own);
    introduced<seen_rank>(0, 2, "waits");
  }

  void expect_one_attempt() {
    EXPECT_EQ(result_line(), "result finished 1 ");
    EXPECT_GT(relay_->broken(), 0);
    EXPECT_EQ(driver_->wait(), 0);
    // The driver does not wait until an agent knows that the run is over.
    EXPECT_THAT(agent_->wait(), AnyOf(0, 75));
    EXPECT_THAT(journal(), Not(HasSubstr("host_lost")));
  }

  std::shared_ptr<program> driver_;
  std::shared_ptr<program> agent_;
  std::optional<breaking_relay> relay_;
};

TEST_P(relayed_connection_test, one_that_is_reset_costs_no_attempt) {
  start_both();
  relay_->break_all();
  relay_->break_after(16 * 1024); // More than it takes to connect.
  go();
  expect_one_attempt();
}

TEST_P(relayed_connection_test, one_that_the_relay_closes_costs_no_attempt) {
  start_both();
  relay_->close_all();
  while (relay_->broken() == 0)
    std::this_thread::yield();
  go();
  relay_->close_all(); // Again, while ranks report.
  expect_one_attempt();
}

// The relay stays: it takes each call of the agent, and then closes it.
TEST_P(relayed_connection_test,
       an_agent_ends_soon_after_its_driver_was_killed) {
  start_both();
  ::kill(driver_->pid, SIGKILL);
  EXPECT_EQ(agent_->wait(), 75);
  for (auto rank : {0, 1})
    await_end(0, rank);
}

// Its driver cannot know at once that it is not the relay which has closed the
// connection.
TEST_P(relayed_connection_test, a_killed_agent_is_lost_although_a_relay_stays) {
  start_both();
  ::kill(agent_->pid, SIGKILL);
  await_end(0, 1);
  agent_ = start_agent(0);
  introduced<seen_rank>(1, 2);
  EXPECT_EQ(result_line(), "result finished 2 ");
  EXPECT_EQ(driver_->wait(), 0);
  EXPECT_EQ(agent_->wait(), 0);
}

/// Hosts of namespaces, which can be broken.
class broken_hosts_test : public many_hosts_test {
protected:
  /// Has `hosts.sh` do *what*.
  void hosts(const std::string& what) {
    EXPECT_EQ(std::system((tool_ + ' ' + what).c_str()), 0) << what;
  }

  /// Loses h2 and h3, each in one way.
  void break_and_replace(const std::string& first, const std::string& second,
                         const std::string& repair) {
    auto driver = start_driver(3, 2, 1);
    auto at_h2 = start_agent(1);
    auto at_h3 = start_agent(2);
    introduced<seen_rank>(0, 3, "waits");
    hosts(first);
    hosts(second);
    // Both sides know: the agents have ended their ranks, and themselves.
    for (auto rank : {1, 2})
      await_end(0, rank);
    EXPECT_EQ(at_h2->wait(), 75);
    EXPECT_EQ(at_h3->wait(), 75);
    hosts(repair);
    at_h2 = start_agent(1);
    at_h3 = start_agent(2);
    EXPECT_EQ(introduced<seen_rank>(1, 3).size(), 3u);
    EXPECT_EQ(result_line(), "result finished 2 ");
    EXPECT_EQ(driver->wait(), 0);
    EXPECT_EQ(at_h2->wait(), 0);
    EXPECT_EQ(at_h3->wait(), 0);
    for (auto host : {"h2", "h3"})
      EXPECT_TRUE(std::regex_search(
        journal(),
        std::regex{concat("host_lost[^\\n]*\"host\":\"", host, '"')}));
  }
};

// Silence on the line is known after 10 s.
TEST_P(broken_hosts_test, resumes_after_a_host_lost_power) {
  auto driver = start_driver(2, 1, 1);
  start_agent(1);
  introduced<seen_rank>(0, 2, "waits");
  hosts("crash h2 && " + tool_ + " boot h2");
  auto agent = start_agent(1);
  auto next = introduced<seen_rank>(1, 2);
  EXPECT_EQ(next[1].node, 1);
  EXPECT_EQ(result_line(), "result finished 2 ");
  EXPECT_EQ(driver->wait(), 0);
  EXPECT_EQ(agent->wait(), 0);
  EXPECT_THAT(journal(), HasSubstr("host h2 is lost"));
}

// Its kernel acknowledges all that comes: only the ticks are missing.
TEST_P(broken_hosts_test, a_frozen_host_is_replaced_and_fenced_after_its_thaw) {
  auto driver = start_driver(2, 1, 2);
  auto frozen = start_agent(1);
  auto ranks = introduced<seen_rank>(0, 2, "waits");
  hosts("freeze h2");
  auto replacement = start_agent(2);
  auto next = introduced<seen_rank>(1, 2, "waits");
  EXPECT_EQ(next[1].host, "h3");
  hosts("thaw h2");
  EXPECT_EQ(frozen->wait(), 75);
  await_end(0, 1);
  go();
  EXPECT_EQ(result_line(), "result finished 2 ");
  EXPECT_EQ(driver->wait(), 0);
  EXPECT_EQ(replacement->wait(), 0);
  EXPECT_THAT(journal(), HasSubstr("host_lost"));
  EXPECT_THAT(journal(), HasSubstr("h2 is lost: it did not answer"));
  EXPECT_THAT(journal(), HasSubstr("ranks_abandoned"));
}

TEST_P(broken_hosts_test, a_host_whose_cable_is_cut_or_that_is_parted_is_lost) {
  break_and_replace("cut h2", "part h1 h3", "heal && " + tool_ + " plug h2");
}

TEST_P(broken_hosts_test, a_host_that_is_mute_in_one_direction_is_lost) {
  break_and_replace("mute h1 h2", "mute h3 h1", "heal");
}

TEST_P(broken_hosts_test, a_short_cut_a_lossy_and_a_slow_link_cost_nothing) {
  auto driver = start_driver(2, 1, 1, 120'000, 30);
  auto agent = start_agent(1);
  introduced<seen_rank>(0, 2, "waits");
  hosts("cut h2 && sleep 2 && " + tool_ + " plug h2");
  hosts("lose h2 5");
  hosts("delay h2 50");
  go();
  EXPECT_EQ(result_line(), "result finished 1 ");
  EXPECT_EQ(driver->wait(), 0);
  EXPECT_EQ(agent->wait(), 0);
  EXPECT_THAT(journal(), Not(HasSubstr("host_lost")));
}

// By default both sides would have given up the connection, and the host.
TEST_P(broken_hosts_test, a_cut_that_is_shorter_than_lost_after_costs_nothing) {
  auto driver = start(0, {"/usr/bin/env", "TROUPE_TEST_LOST_AFTER_MS=20000",
                          own_program(), "--driver", folder_.path().string(),
                          "2", "1", "1", "120000", "30", "0"});
  auto agent = start_agent(1);
  introduced<seen_rank>(0, 2, "waits");
  hosts("cut h2 && sleep 12 && " + tool_ + " plug h2");
  go();
  EXPECT_EQ(result_line(), "result finished 1 ");
  EXPECT_EQ(driver->wait(), 0);
  EXPECT_EQ(agent->wait(), 0);
  EXPECT_THAT(journal(), Not(HasSubstr("host_lost")));
}

TEST_P(broken_hosts_test, a_run_whose_drivers_host_is_lost_resumes_elsewhere) {
  auto driver = start_driver(2, 1, 1);
  auto agent = start_agent(1);
  introduced<seen_rank>(0, 2, "waits");
  hosts("crash h1");
  EXPECT_EQ(agent->wait(), 75);
  await_end(0, 1);
  driver->wait();
  driver = start_driver(2, 1, 0, 120'000, 4, 1);
  agent = start_agent(2);
  auto ranks = introduced<seen_rank>(1, 2);
  EXPECT_EQ(ranks[0].host, "h2");
  EXPECT_EQ(ranks[1].host, "h3");
  EXPECT_EQ(result_line(), "result finished 2 ");
  EXPECT_EQ(driver->wait(), 0);
  EXPECT_EQ(agent->wait(), 0);
}

/// Hosts whose clocks differ, by Debian's libfaketime.
class clocks_test : public many_hosts_test {
protected:
  void SetUp() override {
    for (auto& x : fs::directory_iterator{"/usr/lib"})
      if (auto found = x.path() / "faketime/libfaketimeMT.so.1";
          fs::exists(found))
        library_ = found.string();
    if (library_.empty() || sanitized)
      GTEST_SKIP() << "libfaketime is needed, and to be loaded first";
    many_hosts_test::SetUp();
  }

  /// Starts *command* on *host*, whose clock differs by *offset*.
  std::shared_ptr<program> start_at(int host, const char* offset,
                                    std::vector<std::string> command) {
    command.insert(command.begin(),
                   {"/usr/bin/env", "LD_PRELOAD=" + library_,
                    concat("FAKETIME=", offset),
                    "FAKETIME_DONT_FAKE_MONOTONIC=1", "NO_FAKE_STAT=1"});
    return start(host, std::move(command));
  }

  std::shared_ptr<program> start_agent_at(int host, const char* offset) {
    return start_at(host, offset,
                    {"TROUPE_TICKET=" + (folder_ / "ticket").string(),
                     own_program(), "--node-agent"});
  }

  std::string library_;
};

TEST_P(clocks_test, that_are_hours_apart_do_not_disturb_a_run) {
  auto console = (folder_ / "console").string();
  auto driver =
    start(0, {"/bin/sh", "-c",
              concat("exec env TROUPE_TEST_CONSOLE=1 '", own_program(),
                     "' --driver '", folder_.path().string(),
                     "' 3 2 1 120000 4 0 >'", console, "' 2>&1")});
  auto ahead = start_agent_at(1, "+2h");
  auto behind = start_agent_at(2, "-2h");
  auto ranks = introduced<seen_rank>(0, 3, "waits");
  auto is_ahead = ranks[1].agent == ahead->pid || ranks[1].host == "h2";
  auto& lost = is_ahead ? ahead : behind;
  kill(is_ahead ? 1 : 2, ranks[1].agent);
  await_end(0, 1);
  lost->wait();
  lost = start_agent_at(is_ahead ? 1 : 2, is_ahead ? "+2h" : "-2h");
  auto next = introduced<seen_rank>(1, 3);
  EXPECT_EQ(next[2].from, 2) << "what was reported is there";
  EXPECT_EQ(result_line(), "result finished 2 ");
  EXPECT_EQ(driver->wait(), 0);
  EXPECT_EQ(ahead->wait(), 0);
  EXPECT_EQ(behind->wait(), 0);
  EXPECT_THAT(bytes_of(console), HasSubstr("s ahead of the driver's"));
  EXPECT_THAT(bytes_of(console), HasSubstr("s behind the driver's"));
}

TEST_P(clocks_test, that_are_hours_behind_do_not_keep_a_driver_from_resuming) {
  lose_driver();
  auto driver = start_at(2, "-2h",
                         {own_program(), "--driver", folder_.path().string(),
                          "2", "1", "1", "120000", "4", "0"});
  auto agent = start_agent(1);
  EXPECT_EQ((introduced<seen_rank>(1, 2)[1].from), 2);
  EXPECT_EQ(result_line().substr(0, 16), "result finished ");
  EXPECT_EQ(driver->wait(), 0);
  EXPECT_EQ(agent->wait(), 0);
}

INSTANTIATE_TEST_SUITE_P(hosts, clocks_test,
                         testing::Values(where::here, where::namespaces),
                         name_of);

INSTANTIATE_TEST_SUITE_P(hosts, relayed_connection_test,
                         testing::Values(where::here), name_of);

INSTANTIATE_TEST_SUITE_P(hosts, broken_hosts_test,
                         testing::Values(where::namespaces), name_of);

} // namespace

} // namespace troupe::internal::test
