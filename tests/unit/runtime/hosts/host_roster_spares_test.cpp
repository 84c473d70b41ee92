// Agents that come by themselves to a run with fewer ranks than hosts.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/unit/runtime/hosts/host_roster_fixture.hpp"

namespace troupe::internal::test {
namespace {

/// A run of two ranks on four hosts, of which three come by themselves.
class spare_roster_test : public host_roster_test {
protected:
  spare_roster_test() {
    roster =
      host_roster{{{"", 0, 1, 1}, {"", 1, 1, 1}, {"", 2, 0, 0}, {"", 2, 0, 0}},
                  facts(100, "h0"),
                  host_limits{.join = std::chrono::milliseconds{500}},
                  "10.0.0.1 port 7"};
  }

  /// Host 3 is free.
  void join_two() {
    roster.gather(now);
    EXPECT_EQ(join(1, "h1"), 1u);
    EXPECT_EQ(join(2, "h2"), 2u);
  }

  /// Why the agent *x* is to ask again; empty: it is not.
  std::string why_to_wait(const agent_facts& x) {
    auto host = admit(x);
    return !host && host.error().code == ec::conflict ? host.error().message
                                                      : "";
  }

  /// Passes time in which the agents of the hosts *alive* send their ticks.
  void pass(std::chrono::seconds time,
            const std::vector<std::size_t>& alive = {}) {
    for (; time.count() > 0; time -= std::chrono::seconds{1}) {
      now += std::chrono::seconds{1};
      for (auto i : alive)
        EXPECT_TRUE(roster.ticked(i, i, now));
      roster.check(now);
    }
  }
};

TEST_F(spare_roster_test, waits_for_spares_but_does_not_need_them) {
  roster.gather(now);
  EXPECT_EQ(join(1, "h1"), 1u);
  EXPECT_EQ(join(2, "h2"), 2u);
  EXPECT_FALSE(starts());
  now += std::chrono::milliseconds{501};
  last = roster.check(now);
  ASSERT_TRUE(starts());
  EXPECT_EQ(roster.world_size(), 2);
  // A later attempt begins with those that it needs.
  roster.gone(2, 2, "gone", now);
  last = roster.gather(now, true);
  EXPECT_TRUE(starts());
}

TEST_F(spare_roster_test, does_not_miss_spares) {
  roster.gather(now);
  EXPECT_EQ(missing(), "1 of 2 hosts is missing after 500 ms, and 2 are "
                       "needed:\n  host 1: no agent has connected to 10.0.0.1 "
                       "port 7");
}

TEST_F(spare_roster_test, gives_a_new_agent_the_host_that_has_ranks) {
  roster.gather(now);
  EXPECT_EQ(join(1, "h1"), 1u);
  EXPECT_EQ(join(2, "h2"), 2u);
  roster.gone(1, 1, "gone", now);
  EXPECT_EQ(join(3, "h3"), 1u) << "host 3 has never had an agent";
  EXPECT_EQ(join(4, "h1"), 3u);
}

// An agent that is lost would be so by then.
TEST_F(spare_roster_test, may_have_a_spare_on_a_machine_with_ranks) {
  auto of_machine = [](std::uint64_t incarnation) {
    auto x = facts(incarnation, "h1");
    x.boot = "b1";
    return x;
  };
  EXPECT_EQ(admit(of_machine(1)).value_or(0), 1u);
  EXPECT_TRUE(roster.checked(1, 1, {}, now));
  EXPECT_EQ(join(2, "h2"), 2u);
  auto x = of_machine(3);
  EXPECT_EQ(why_to_wait(x), "h1 has its agent");
  pass(std::chrono::seconds{12}, {1, 2});
  EXPECT_EQ(why_to_wait(x), "h1 has its agent");
  pass(std::chrono::seconds{1}, {1, 2});
  EXPECT_EQ(admit(x).value_or(0), 3u);
  EXPECT_EQ(roster.sharing(3), "");
  EXPECT_TRUE(roster.checked(3, 3, {}, now));
  EXPECT_EQ(admit(x).value_or(0), 3u) << "it asks again";
}

// Its machine was reset, or its pod started again.
TEST_F(spare_roster_test, waits_for_its_own_host_until_its_loss_is_known) {
  join_two();
  auto x = facts(3, "h1");
  EXPECT_EQ(why_to_wait(x), "h1 has its agent");
  roster.gone(1, 1, "gone", now);
  EXPECT_EQ(admit(x).value_or(0), 1u);
}

TEST_F(spare_roster_test, waits_for_its_own_host_that_is_silent) {
  join_two();
  auto x = facts(3, "h1");
  EXPECT_NE(why_to_wait(x), "");
  pass(std::chrono::seconds{5}, {2});
  EXPECT_NE(why_to_wait(x), "");
  now += std::chrono::hours{1}; // A signal stopped the driver.
  EXPECT_NE(why_to_wait(x), "");
  pass(std::chrono::seconds{5}, {2});
  EXPECT_EQ(admit(x).value_or(0), 1u);
}

// A Job starts the next pod of the same name while the first one ends.
TEST_F(spare_roster_test, waits_for_its_own_host_that_leaves) {
  join_two();
  roster.attempt_started({0, 1, 2});
  roster.draining(1, 1, std::chrono::seconds{60}, now);
  auto x = facts(3, "h1");
  EXPECT_NE(why_to_wait(x), "");
  pass(std::chrono::seconds{30}, {1, 2});
  EXPECT_NE(why_to_wait(x), "");
  roster.attempt_ended(now);
  EXPECT_EQ(admit(x).value_or(0), 1u);
}

TEST_F(spare_roster_test, an_agent_of_another_host_is_a_spare_at_once) {
  join_two();
  EXPECT_EQ(admit(facts(3, "h3")).value_or(0), 3u);
}

// Its GPUs may show late after a boot.
TEST_F(spare_roster_test, waits_for_its_own_host_while_it_lacks_room) {
  host_limits limits;
  limits.claim = {0, 1};
  auto with_gpus = [](std::uint64_t incarnation, const std::string& host,
                      int gpus) {
    auto x = facts(incarnation, host);
    x.gpus = gpus;
    return x;
  };
  roster = host_roster{{{"", 0, 1, 1}, {"", 1, 1, 1}, {"", 2, 0, 0}},
                       with_gpus(100, "h0", 1),
                       limits,
                       "10.0.0.1 port 7"};
  EXPECT_EQ(admit(with_gpus(1, "h1", 1)).value_or(0), 1u);
  EXPECT_TRUE(roster.checked(1, 1, {}, now));
  roster.gone(1, 1, "gone", now);
  EXPECT_EQ(why_to_wait(with_gpus(2, "h1", 0)),
            "1 worker asks for 1 gpus, host h1 has 0");
  EXPECT_EQ(admit(with_gpus(3, "h2", 0)).value_or(0), 2u);
  EXPECT_EQ(admit(with_gpus(2, "h1", 1)).value_or(0), 1u);
}

} // namespace
} // namespace troupe::internal::test
