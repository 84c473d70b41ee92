// Which agents a run admits as its hosts, and when it has all of them.

#include <chrono>
#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include <gmock/gmock.h>

#include "tests/unit/runtime/hosts/host_roster_fixture.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/unix_time.hpp"

namespace troupe::internal::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(host_roster_test, starts_once_all_agents_are_here) {
  EXPECT_THAT(roster.gather(now), IsEmpty());
  EXPECT_EQ(join(1, "h1"), 1u);
  EXPECT_FALSE(starts());
  EXPECT_EQ(join(2, "h2"), 2u);
  EXPECT_TRUE(starts());
}

TEST_F(host_roster_test, waits_for_an_agent_that_checks_its_host) {
  roster.gather(now);
  join(1, "h1");
  ASSERT_TRUE(admit(facts(2, "h2")));
  EXPECT_THAT(missing(), HasSubstr("h2: no agent has connected"));
}

TEST_F(host_roster_test, names_missing_hosts_after_the_limit) {
  roster.gather(now);
  join(1, "h1");
  auto text = missing();
  EXPECT_THAT(text, HasSubstr("1 of 3 hosts is missing"));
  EXPECT_THAT(text,
              HasSubstr("host 2: no agent has connected to 10.0.0.1 port 7"));
}

TEST_F(host_roster_test, says_which_hosts_are_awaited_where) {
  join(1, "h1");
  EXPECT_EQ(roster.waiting_text(),
            "waiting for the agents of host 2 at 10.0.0.1 port 7");
}

TEST_F(host_roster_test, says_that_a_silent_host_is_awaited) {
  join(1, "h1");
  join(2, "h2");
  for (int second = 0; second < 5; ++second) {
    roster.check(now);
    EXPECT_TRUE(roster.ticked(2, 2, now));
    now += std::chrono::seconds{1};
  }
  EXPECT_EQ(roster.at(1).state, host_state::suspect);
  EXPECT_EQ(roster.waiting_text(),
            "waiting for the agents of h1 at 10.0.0.1 port 7");
}

TEST_F(host_roster_test, refuses_another_build_and_keeps_waiting) {
  roster.gather(now);
  auto refused = admit(facts(1, "h1", "bb"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ec::invalid_config);
  EXPECT_THAT(refused.error().message, HasSubstr("build id bb"));
  join(2, "h2");
  EXPECT_FALSE(starts());
  join(3, "h1");
  EXPECT_TRUE(starts());
}

/// The driver's program has found the library `libtorch_cpu.so` as it should.
class library_roster_test : public host_roster_test {
protected:
  library_roster_test() {
    auto own = facts(100, "h0");
    own.libraries = {{"libtorch_cpu.so", "c1"}, {"libtorch_cuda.so", "c2"}};
    roster = host_roster{{{"", 0, 1, 1}, {"", 1, 1, 1}}, own, {}, "here"};
    roster.gather(now);
  }
};

TEST_F(library_roster_test, refuses_another_build_of_a_library) {
  auto x = facts(1, "h1");
  x.libraries = {{"libc10.so", "d0"}, {"libtorch_cpu.so", "d1"}};
  auto refused = admit(x);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ec::invalid_config);
  EXPECT_EQ(refused.error().message,
            "its libtorch_cpu.so has build id d1, the driver's has c1: start "
            "every host with the same libraries");
}

// LibTorch's part for GPUs is loaded where there is one.
TEST_F(library_roster_test, a_library_that_is_not_loaded_is_not_compared) {
  auto x = facts(1, "h1");
  x.libraries = {{"libc10.so", "d0"}, {"libtorch_cpu.so", "c1"}};
  EXPECT_TRUE(admit(x));
}

TEST_F(host_roster_test, tells_of_two_agents_on_one_machine) {
  roster.gather(now);
  auto admitted = [this](std::uint64_t incarnation, const std::string& host,
                         const std::string& boot) {
    auto x = facts(incarnation, host);
    x.boot = boot;
    return admit(x).value_or(0);
  };
  // A container, or a namespace, has a name of its own.
  auto first = admitted(1, "h1", "b1");
  EXPECT_EQ(roster.sharing(first), "");
  auto second = admitted(2, "h2", "b1");
  EXPECT_EQ(roster.sharing(second), "");
  roster.gone(second, 2, "gone", now);
  second = admitted(3, "h1", "b2");
  EXPECT_EQ(roster.sharing(second), "") << "another machine of that name";
  roster.gone(second, 3, "gone", now);
  second = admitted(4, "h1", "b1");
  EXPECT_THAT(roster.sharing(second),
              HasSubstr("of h1 (host 1) and h1 (host 2) run on one machine"));
  // Its predecessor is not another agent.
  roster.gone(first, 1, "gone", now);
  first = admitted(5, "h3", "b1");
  EXPECT_EQ(roster.sharing(second), "");
}

// It was given by another name than that of this machine.
TEST_F(host_roster_test,
       a_driver_without_ranks_leaves_its_machine_to_an_agent) {
  auto own = facts(100, "h0");
  own.boot = "b0";
  roster = host_roster{
    {{"", 0, 0, 0}, {"", 0, 1, 1}}, own, host_limits{}, "10.0.0.1 port 7"};
  roster.gather(now);
  auto agent = facts(1, "h0");
  agent.boot = "b0";
  EXPECT_EQ(admit(agent).value_or(0), 1u);
  EXPECT_EQ(roster.sharing(1), "");
}

TEST_F(host_roster_test, remembers_why_an_agent_was_refused) {
  roster.gather(now);
  EXPECT_FALSE(admit(facts(1, "h1", "bb")));
  EXPECT_THAT(missing(), HasSubstr("the agent of h1 was refused: its program"));
}

TEST_F(host_roster_test, names_the_problem_of_a_host_that_is_missing) {
  roster.gather(now);
  auto number = admit(facts(1, "h1"));
  ASSERT_TRUE(number);
  EXPECT_TRUE(roster.checked(*number, 1, {ec::storage, "read-only"}, now));
  join(2, "h2");
  EXPECT_THAT(missing(), HasSubstr("h1: read-only"));
}

TEST_F(host_roster_test, a_host_whose_storage_fails_asks_again) {
  roster.gather(now);
  ASSERT_TRUE(admit(facts(1, "h1")));
  auto decisions = roster.checked(1, 1, {ec::storage, "full"}, now);
  ASSERT_TRUE(decisions);
  EXPECT_THAT(*decisions, IsEmpty());
  EXPECT_EQ(join(1, "h1"), 1u);
  join(2, "h2");
  EXPECT_TRUE(starts());
}

TEST_F(host_roster_test, refuses_more_agents_than_hosts) {
  join(1, "h1");
  join(2, "h2");
  auto refused = admit(facts(3, "h3"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ec::conflict);
  EXPECT_THAT(refused.error().message, HasSubstr("h0, h1, h2"));
}

TEST_F(host_roster_test, a_host_that_comes_back_gets_its_own_number) {
  join(1, "h1");
  join(2, "h2");
  roster.gone(1, 1, "lost", now);
  roster.gone(2, 2, "lost", now);
  EXPECT_EQ(join(3, "h2"), 2u);
  EXPECT_EQ(join(4, "other"), 1u);
}

TEST_F(host_roster_test, an_agent_that_asks_again_keeps_its_host) {
  join(1, "h1");
  join(2, "h1");
  roster.gone(2, 2, "lost", now);
  EXPECT_EQ(join(1, "h1"), 1u);
}

TEST_F(host_roster_test, an_agent_that_was_replaced_counts_no_more) {
  join(1, "h1");
  roster.gone(1, 1, "lost", now);
  join(3, "h1");
  EXPECT_FALSE(roster.checked(1, 1, {}, now));
  EXPECT_THAT(roster.gone(1, 1, "again", now), IsEmpty());
  join(2, "h2");
  EXPECT_FALSE(roster.gather(now).empty()) << "all are here";
}

TEST_F(host_roster_test, names_the_host_that_an_attempt_lost) {
  join(1, "h1");
  join(2, "h2");
  roster.gone(2, 2, "its connection ended", now);
  roster.gather(now);
  EXPECT_THAT(missing(), HasSubstr("h2: its connection ended"));
}

/// The decisions of type T among *x*.
template <class T>
std::vector<T> all_of(const host_decisions& x) {
  std::vector<T> result;
  for (auto& decision : x)
    if (auto* found = std::get_if<T>(&decision))
      result.push_back(*found);
  return result;
}

TEST_F(host_roster_test, hosts_stay_while_their_agents_tick) {
  join(1, "h1");
  join(2, "h2");
  for (int i = 0; i < 3600; ++i) {
    now += std::chrono::seconds{1};
    EXPECT_THAT(roster.ticked(1, 1, now).value(), IsEmpty());
    EXPECT_THAT(roster.ticked(2, 2, now).value(), IsEmpty());
    EXPECT_THAT(roster.check(now), IsEmpty()) << "nor is the driver's own lost";
  }
  EXPECT_FALSE(roster.gather(now).empty()) << "all are here";
}

TEST_F(host_roster_test, a_silent_host_is_suspected_then_lost) {
  join(1, "h1");
  join(2, "h2");
  host_decisions said;
  for (int i = 0; i < 10; ++i) {
    now += std::chrono::seconds{1};
    EXPECT_TRUE(roster.ticked(1, 1, now));
    for (auto& x : roster.check(now))
      said.push_back(x);
  }
  auto suspected = all_of<host_suspected>(said);
  ASSERT_EQ(suspected.size(), 1u);
  EXPECT_EQ(suspected[0].host, 2u);
  EXPECT_EQ(suspected[0].silence, std::chrono::seconds{3});
  auto fenced = all_of<fence_agent>(said);
  ASSERT_EQ(fenced.size(), 1u);
  EXPECT_EQ(fenced[0].incarnation, 2u);
  ASSERT_EQ(all_of<host_lost>(said).size(), 1u);
  EXPECT_FALSE(roster.at(2).is_here());
  // What it sends after its thaw does not count, and its host is free.
  EXPECT_FALSE(roster.ticked(2, 2, now));
  EXPECT_EQ(join(3, "h2"), 2u);
}

TEST_F(host_roster_test, an_agent_that_never_ends_its_checks_leaves_its_host) {
  roster.gather(now);
  join(1, "h1");
  ASSERT_TRUE(admit(facts(2, "h2")));
  EXPECT_TRUE(roster.ticked(2, 2, now)) << "it may tick meanwhile";
  EXPECT_EQ(admit(facts(3, "h3")).error().code, ec::conflict);
  now += std::chrono::milliseconds{500};
  auto fenced = all_of<fence_agent>(roster.check(now));
  ASSERT_EQ(fenced.size(), 1u);
  EXPECT_EQ(fenced[0].incarnation, 2u);
  EXPECT_EQ(join(3, "h3"), 2u);
}

// Its report may be behind the check in the driver's mailbox.
TEST_F(host_roster_test, an_agent_may_check_its_host_while_the_driver_stands) {
  roster.gather(now);
  auto number = admit(facts(2, "h2"));
  ASSERT_TRUE(number);
  now += std::chrono::hours{1};
  EXPECT_THAT(all_of<fence_agent>(roster.check(now)), IsEmpty());
  EXPECT_TRUE(roster.checked(*number, 2, {}, now));
}

TEST_F(host_roster_test, a_run_on_one_host_starts_at_once_without_agents) {
  roster = host_roster{4};
  EXPECT_FALSE(roster.is_open());
  EXPECT_EQ(roster.world_size(), 4);
  for (int attempt = 0; attempt < 3; ++attempt) {
    last = roster.gather(now);
    EXPECT_TRUE(starts());
    roster.attempt_started({0});
    now += std::chrono::hours{1};
    EXPECT_THAT(roster.attempt_ended(now), IsEmpty());
  }
}

TEST_F(host_roster_test, no_agent_is_taken_for_the_drivers_own) {
  EXPECT_FALSE(roster.checked(0, 100, {}, now));
  EXPECT_FALSE(roster.ticked(0, 100, now));
  EXPECT_FALSE(roster.has(0, 100));
}

TEST_F(host_roster_test, knows_the_host_of_each_rank) {
  roster = host_roster{
    {{"", 0, 0, 1}, {"", 0, 2, 2}, {"", 2, 0, 1}, {"", 2, 1, 1}, {"", 3, 0, 1}},
    facts(100, "h0"),
    {},
    "here"};
  EXPECT_EQ(roster.world_size(), 3);
  EXPECT_EQ(roster.host_with(0), 1u);
  EXPECT_EQ(roster.host_with(1), 1u);
  EXPECT_EQ(roster.host_with(2), 3u);
  EXPECT_EQ(roster.node_rank(1), 0);
  EXPECT_EQ(roster.node_rank(3), 1) << "hosts without ranks do not count";
}

TEST_F(host_roster_test, closes_the_ring_at_the_last_host_with_ranks) {
  roster = host_roster{{{"", 0, 1, 1}, {"", 1, 1, 1}, {"", 2, 0, 1}},
                       facts(100, "h0"),
                       {},
                       "here"};
  for (std::uint64_t i : {1, 2}) {
    auto x = facts(i, concat("h", i));
    x.address = concat("10.0.1.", i);
    x.driver_address = concat("10.0.0.", i);
    ASSERT_EQ(admit(x), i);
    EXPECT_TRUE(roster.checked(i, i, {}, now, i == 1 ? "" : "10.9.1.2"));
  }
  roster.close_ring();
  EXPECT_EQ(roster.at(0).address, "10.0.0.1");
  EXPECT_EQ(roster.at(1).address, "10.0.1.1");
  EXPECT_EQ(roster.at(2).address, "10.9.1.2") << "its own choice";
}

TEST(clock_warning_test, tells_of_more_than_a_minute_in_either_direction) {
  using namespace std::chrono_literals;
  std::chrono::system_clock::time_point now{100h};
  agent_facts x;
  x.host = "h1";
  x.clock_ms = unix_ms(now + 60s);
  EXPECT_EQ(clock_warning(x, now), "");
  x.clock_ms = unix_ms(now + 2h);
  EXPECT_THAT(clock_warning(x, now), HasSubstr("h1 is 7200 s ahead"));
  x.clock_ms = unix_ms(now - 2h);
  EXPECT_THAT(clock_warning(x, now), HasSubstr("h1 is 7200 s behind"));
}

TEST(clock_warning_test, does_not_blame_a_clock_for_the_drivers_standstill) {
  using namespace std::chrono_literals;
  std::chrono::system_clock::time_point now{100h};
  agent_facts x;
  x.host = "h1";
  x.clock_ms = unix_ms(now - 2h);
  EXPECT_EQ(clock_warning(x, now, 2h), "");
  EXPECT_THAT(clock_warning(x, now, 1h), HasSubstr("h1 is 7200 s behind"));
  x.clock_ms = unix_ms(now + 2h);
  EXPECT_THAT(clock_warning(x, now, 2h), HasSubstr("h1 is 7200 s ahead"));
}

} // namespace
} // namespace troupe::internal::test
