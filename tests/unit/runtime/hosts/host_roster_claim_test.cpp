// For how many ranks a host has room, by what each of them claims.

#include <variant>
#include <vector>

#include <gmock/gmock.h>

#include "tests/unit/runtime/hosts/host_roster_fixture.hpp"

namespace troupe::internal::test {
namespace {

using testing::HasSubstr;

/// Three hosts whose agents come by themselves. The ranks of each claim a core
/// and a GPU each.
class claim_roster_test : public host_roster_test {
protected:
  claim_roster_test() { make(0, {2, 2, 1}); }

  void make(int min_ranks, const std::vector<int>& slots, int per_host = 0,
            host_limits limits = {}) {
    limits.min_ranks = min_ranks;
    limits.per_host = per_host;
    limits.claim = {1, 1};
    std::vector<planned_host> hosts;
    for (auto ranks : slots)
      hosts.push_back({"", 0, ranks, ranks});
    roster = host_roster{hosts, with("h0", 100, 2), limits, "10.0.0.1 port 7"};
  }

  static agent_facts with(const std::string& host, std::uint64_t incarnation,
                          int gpus) {
    auto x = facts(incarnation, host);
    x.cores = 8;
    x.gpus = gpus;
    return x;
  }

  /// An elastic run has lost a host that had room for two ranks.
  void lose_first() {
    make(1, {2, 2, 2});
    ASSERT_EQ(admit(with("h1", 1, 2)).value(), 1u);
    roster.checked(1, 1, {}, now);
    roster.gone(1, 1, "lost", now);
  }

  /// Whether the agent *x* is to ask again.
  bool has_to_wait(const agent_facts& x) {
    auto host = admit(x);
    return !host && host.error().code == ec::conflict;
  }

  /// Passes *time* in which the driver looks after its hosts.
  void pass(host_limits::duration time) {
    for (; time.count() > 0; time -= roster.next_check()) {
      now += roster.next_check();
      last = roster.check(now);
    }
  }
};

TEST_F(claim_roster_test, refuses_a_host_that_cannot_hold_its_ranks) {
  auto refused = admit(with("h1", 1, 0));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ec::invalid_config);
  EXPECT_EQ(refused.error().message, "2 workers ask for 2 gpus, host h1 has 0");
  EXPECT_EQ(admit(with("h2", 2, 2)).value(), 1u) << "its place stays free";
  EXPECT_EQ(roster.shortage(1), "");
}

TEST_F(claim_roster_test, ranks_have_no_gpus_that_their_variables_hide) {
  host_limits limits;
  limits.shown_gpus = 1;
  make(1, {1, 2, 2}, 0, limits);
  ASSERT_EQ(admit(with("h1", 1, 2)).value(), 1u);
  EXPECT_EQ(roster.at(1).room.ranks, 1);
}

TEST_F(claim_roster_test, a_smaller_host_gets_a_smaller_part) {
  EXPECT_EQ(admit(with("h1", 1, 1)).value(), 2u);
  EXPECT_EQ(admit(with("h2", 2, 2)).value(), 1u);
}

TEST_F(claim_roster_test, a_host_of_an_elastic_run_has_the_ranks_it_can_hold) {
  make(1, {2, 2, 2});
  ASSERT_EQ(admit(with("h1", 1, 1)).value(), 1u);
  EXPECT_EQ(roster.at(1).room.ranks, 1);
  EXPECT_EQ(roster.shortage(1), "host h1 has room for 1 of 2 ranks: 2 workers "
                                "ask for 2 gpus, host h1 has 1");
  auto refused = admit(with("h2", 2, 0));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "1 worker asks for 1 gpus, host h2 has 0");
}

TEST_F(claim_roster_test, fewer_ranks_count_for_the_start_of_an_elastic_run) {
  make(5, {2, 2, 2});
  roster.gather(now);
  for (std::uint64_t i : {1, 2}) {
    auto host = admit(with(i == 1 ? "h1" : "h2", i, 1));
    ASSERT_TRUE(host);
    last = roster.checked(*host, i, {}, now).value();
  }
  ASSERT_FALSE(last.empty());
  auto* few = std::get_if<too_few_hosts>(&last.back());
  ASSERT_TRUE(few);
  EXPECT_THAT(few->reason.message, HasSubstr("room for 5 ranks is needed"));
}

TEST_F(claim_roster_test, a_host_that_comes_back_with_more_has_more_ranks) {
  make(1, {2, 2, 2});
  ASSERT_EQ(admit(with("h1", 1, 1)).value(), 1u);
  roster.checked(1, 1, {}, now);
  roster.gone(1, 1, "lost", now);
  ASSERT_EQ(admit(with("h1", 2, 2)).value(), 1u);
  EXPECT_EQ(roster.at(1).room.ranks, 2);
  EXPECT_EQ(roster.shortage(1), "");
}

TEST_F(claim_roster_test, a_host_that_comes_back_may_show_a_part_late) {
  lose_first();
  auto refused = admit(with("h1", 2, 1));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ec::conflict);
  EXPECT_EQ(refused.error().message, "2 workers ask for 2 gpus, host h1 has 1");
  pass(host_states::late_room);
  ASSERT_EQ(admit(with("h1", 2, 1)).value(), 1u) << "that is all it has";
  EXPECT_EQ(roster.at(1).room.ranks, 1);
}

// Its machine has booted once more, or its pod was started again.
TEST_F(claim_roster_test, each_agent_of_a_host_may_show_a_part_late) {
  lose_first();
  EXPECT_TRUE(has_to_wait(with("h1", 2, 1)));
  pass(host_states::late_room);
  EXPECT_TRUE(has_to_wait(with("h1", 3, 1)));
  pass(host_states::late_room);
  EXPECT_EQ(admit(with("h1", 3, 1)).value(), 1u);
}

TEST_F(claim_roster_test, two_agents_of_a_host_do_not_hold_each_other_back) {
  lose_first();
  for (std::uint64_t agent : {2, 3, 2})
    EXPECT_TRUE(has_to_wait(with("h1", agent, 1)));
  pass(host_states::late_room);
  EXPECT_EQ(admit(with("h1", 2, 1)).value(), 1u);
}

TEST_F(claim_roster_test, a_part_is_not_late_for_the_drivers_standstill) {
  lose_first();
  EXPECT_TRUE(has_to_wait(with("h1", 2, 1)));
  pass(host_states::late_room / 2);
  now += std::chrono::hours{1}; // A signal stopped the driver.
  EXPECT_TRUE(has_to_wait(with("h1", 2, 1)));
  pass(host_states::late_room / 2);
  EXPECT_EQ(admit(with("h1", 2, 1)).value(), 1u);
}

TEST_F(claim_roster_test, another_machine_with_too_little_is_refused_for_good) {
  ASSERT_EQ(admit(with("h1", 1, 2)).value(), 1u);
  roster.checked(1, 1, {}, now);
  roster.gone(1, 1, "lost", now);
  ASSERT_EQ(admit(with("h2", 2, 1)).value(), 2u);
  EXPECT_EQ(admit(with("h3", 3, 0)).error().code, ec::invalid_config);
  EXPECT_EQ(admit(with("h1", 4, 0)).error().code, ec::conflict);
}

TEST_F(claim_roster_test, hosts_that_have_equally_many_ranks_have_all_or_none) {
  make(2, {2, 2, 2}, 2);
  auto refused = admit(with("h1", 1, 1));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "2 workers ask for 2 gpus, host h1 has 1");
}

TEST_F(claim_roster_test, the_driver_has_no_more_ranks_than_it_can_hold) {
  make(1, {4, 2, 2});
  EXPECT_EQ(roster.at(0).room.ranks, 2);
}

} // namespace
} // namespace troupe::internal::test
