#include "troupe/runtime/hosts/host_roster.hpp"

#include <algorithm>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "troupe/runtime/text.hpp"
#include "troupe/runtime/unix_time.hpp"

namespace troupe::internal {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

/// A run on three hosts, of which two come by themselves.
class host_roster_test : public testing::Test {
protected:
  static agent_facts facts(std::uint64_t incarnation, const std::string& host,
                           const std::string& build_id = "aa") {
    agent_facts x;
    x.incarnation = incarnation;
    x.host = host;
    x.build_id = build_id;
    x.version = "1";
    return x;
  }

  expected<std::size_t> admit(const agent_facts& x) {
    last.clear();
    return roster.admit(x, now, last);
  }

  /// The agent is assigned a host and finds it in order.
  std::size_t join(std::uint64_t incarnation, const std::string& host) {
    auto number = admit(facts(incarnation, host));
    EXPECT_TRUE(number) << number.error().message;
    if (!number)
      return 0;
    auto decisions = roster.checked(*number, incarnation, {}, now);
    EXPECT_TRUE(decisions);
    if (decisions)
      last = std::move(*decisions);
    return *number;
  }

  bool starts() const {
    return !last.empty()
           && std::holds_alternative<start_with_hosts>(last.back());
  }

  std::string missing() {
    now += std::chrono::milliseconds{501};
    auto decisions = roster.check(now);
    if (decisions.empty())
      return "none";
    auto* few = std::get_if<too_few_hosts>(&decisions.back());
    return few ? few->reason.message : "none";
  }

  host_roster::time_point now{std::chrono::hours{1}};
  host_roster roster{{{"", 0, 1, 1}, {"", 1, 1, 1}, {"", 2, 1, 1}},
                     facts(100, "h0"),
                     host_limits{.join = std::chrono::milliseconds{500}},
                     "10.0.0.1 port 7"};
  host_decisions last;
};

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

TEST_F(host_roster_test, remembers_why_an_agent_was_refused) {
  roster.gather(now);
  EXPECT_FALSE(admit(facts(1, "h1", "bb")));
  EXPECT_THAT(missing(), HasSubstr("the agent of h1 was refused: its program"));
}

TEST_F(host_roster_test, a_host_with_a_problem_is_free_again) {
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

TEST_F(host_roster_test, a_host_that_saw_another_attempt_asks_again) {
  roster.gather(now);
  auto number = admit(facts(1, "h1"));
  ASSERT_TRUE(number);
  auto decisions = roster.checked(*number, 1, {ec::conflict, "late"}, now);
  ASSERT_TRUE(decisions);
  EXPECT_THAT(*decisions, IsEmpty());
  EXPECT_EQ(join(1, "h1"), *number);
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

/// A run on three hosts, of which h1 and h2 are launched.
class launched_roster_test : public host_roster_test {
protected:
  launched_roster_test() {
    launch(1, host_limits{.join = std::chrono::milliseconds{500}});
  }

  /// Begins with *each* ranks on every host; *own* is the driver's.
  void launch(int each, const host_limits& limits,
              agent_facts own = facts(100, "h0")) {
    roster = host_roster{{{"", 0, each, each},
                          {"h1", each, each, each},
                          {"h2", 2 * each, each, each}},
                         std::move(own),
                         limits,
                         "10.0.0.1 port 7",
                         [] { return 0.0; }};
    launches.clear();
    for (auto& x : roster.gather(now))
      if (auto* launch = std::get_if<launch_agent>(&x))
        launches.push_back(launch->launch);
  }

  static agent_facts launched(std::uint64_t launch, std::uint64_t incarnation,
                              const std::string& build_id = "aa") {
    auto x = facts(incarnation, "its-own-name", build_id);
    x.launch = launch;
    return x;
  }

  template <class T>
  int count() const {
    return static_cast<int>(std::ranges::count_if(
      last, [](auto& x) { return std::holds_alternative<T>(x); }));
  }

  std::vector<std::uint64_t> launches;
};

TEST_F(launched_roster_test, an_agent_has_the_host_that_it_was_launched_on) {
  ASSERT_EQ(launches.size(), 2u);
  auto number = admit(launched(launches[1], 7));
  ASSERT_TRUE(number);
  EXPECT_EQ(*number, 2u);
  EXPECT_EQ(roster.name(2), "h2");
  EXPECT_EQ(admit(launched(launches[1], 8)).error().code, ec::conflict);
}

TEST_F(launched_roster_test, takes_no_agents_that_it_did_not_launch) {
  auto refused = admit(facts(7, "h1"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ec::invalid_config);
  EXPECT_THAT(refused.error().message,
              HasSubstr("number of its ranks is fixed"));
  EXPECT_EQ(admit(launched(99, 7)).error().code, ec::stopped);
}

TEST_F(launched_roster_test, launches_again_after_a_while) {
  last = roster.launcher_ended(launches[0], "refused", true, now);
  EXPECT_EQ(count<launch_agent>(), 0);
  now += std::chrono::seconds{1};
  last = roster.check(now);
  ASSERT_EQ(count<launch_agent>(), 1);
  EXPECT_NE(roster.at(1).launch, launches[0]);
  EXPECT_EQ(admit(launched(launches[0], 7)).error().code, ec::stopped);
}

TEST_F(launched_roster_test, a_lost_host_is_launched_with_the_next_attempt) {
  for (std::size_t i : {0, 1}) {
    ASSERT_TRUE(admit(launched(launches[i], i + 1)));
    roster.checked(i + 1, i + 1, {}, now);
  }
  last = roster.gone(2, 2, "lost", now);
  EXPECT_EQ(count<end_launcher>(), 1);
  now += std::chrono::minutes{5};
  last = roster.gather(now);
  EXPECT_EQ(count<launch_agent>(), 1);
}

TEST_F(launched_roster_test, gives_up_a_host_that_can_never_work) {
  EXPECT_FALSE(admit(launched(launches[0], 7, "bb")));
  EXPECT_EQ(count<end_launcher>(), 1);
  EXPECT_EQ(count<host_given_up>(), 1);
  ASSERT_EQ(count<too_few_hosts>(), 1);
  EXPECT_THAT(std::get<too_few_hosts>(last.back()).reason.message,
              HasSubstr("h1: the agent of its-own-name was refused"));
}

TEST_F(launched_roster_test, gives_up_no_host_whose_storage_may_come_back) {
  ASSERT_TRUE(admit(launched(launches[0], 7)));
  last = roster.checked(1, 7, {ec::storage, "full"}, now).value();
  EXPECT_EQ(count<host_given_up>(), 0);
  EXPECT_THAT(missing(), HasSubstr("h1: full"));
}

TEST_F(launched_roster_test, gives_up_no_host_that_may_mount_its_storage_late) {
  ASSERT_TRUE(admit(launched(launches[0], 7)));
  roster.checked(1, 7, {}, now);
  roster.gone(1, 7, "lost", now);
  now += std::chrono::seconds{1};
  roster.gather(now);
  ASSERT_TRUE(admit(launched(roster.at(1).launch, 8)));
  last =
    roster.checked(1, 8, {ec::invalid_config, "no such folder"}, now).value();
  EXPECT_THAT(last, IsEmpty());
  EXPECT_THAT(missing(), HasSubstr("h1: no such folder"));
}

TEST_F(launched_roster_test, names_the_last_cause_why_a_host_is_given_up) {
  ASSERT_TRUE(admit(launched(launches[0], 7)));
  last = roster.checked(1, 7, {ec::storage, "full"}, now).value();
  EXPECT_FALSE(admit(launched(launches[0], 8, "bb")));
  ASSERT_EQ(count<too_few_hosts>(), 1);
  EXPECT_THAT(std::get<too_few_hosts>(last.back()).reason.message,
              HasSubstr("was refused"));
}

/// The same for 2 to 6 ranks, two on each host.
class guest_roster_test : public launched_roster_test {
protected:
  guest_roster_test() {
    launch(2, host_limits{.join = std::chrono::milliseconds{500},
                          .min_ranks = 2,
                          .max_ranks = 6});
  }

  void join_launched(std::size_t host) {
    ASSERT_TRUE(admit(launched(launches[host - 1], host)));
    EXPECT_TRUE(roster.checked(host, host, {}, now));
  }
};

TEST_F(guest_roster_test, a_guest_may_come_while_there_is_room_for_more_ranks) {
  join_launched(1);
  join_launched(2);
  auto refused = admit(facts(7, "h9"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ec::conflict) << "it may ask again";
  roster.gone(2, 2, "lost", now);
  EXPECT_EQ(join(7, "h9"), 3u);
  EXPECT_EQ(roster.all().size(), 4u);
  EXPECT_EQ(roster.name(3), "h9");
  EXPECT_EQ(roster.at(3).room.ranks, 2);
  EXPECT_TRUE(roster.at(3).is_guest);
  EXPECT_THAT(roster.usable(), testing::ElementsAre(0u, 1u, 3u));
  EXPECT_EQ(admit(facts(8, "h8")).error().code, ec::conflict);
}

TEST_F(guest_roster_test, a_guest_on_a_host_of_the_run_ends_its_launch) {
  EXPECT_EQ(join(7, "h2"), 2u);
  EXPECT_EQ(roster.all().size(), 3u);
  ASSERT_EQ(count<end_launcher>(), 1);
  EXPECT_EQ(admit(launched(launches[1], 8)).error().code, ec::conflict);
  last = roster.gone(2, 7, "lost", now);
  now += std::chrono::seconds{1};
  last = roster.check(now);
  EXPECT_EQ(count<launch_agent>(), 1) << "it is a host of the run as before";
}

TEST_F(guest_roster_test, a_guest_of_another_build_is_refused_alone) {
  auto refused = admit(facts(7, "h2", "bb"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ec::invalid_config);
  EXPECT_THAT(last, IsEmpty());
  join_launched(2);
  EXPECT_TRUE(roster.at(2).is_here());
}

TEST_F(guest_roster_test, a_guest_with_a_problem_leaves_the_launch_alone) {
  auto number = admit(facts(7, "h2"));
  ASSERT_TRUE(number);
  auto decisions = roster.checked(*number, 7, {ec::storage, "read-only"}, now);
  ASSERT_TRUE(decisions);
  EXPECT_THAT(*decisions, IsEmpty());
  EXPECT_EQ(roster.at(*number).problem, "read-only");
  join_launched(2);
  EXPECT_TRUE(roster.at(2).is_here());
}

TEST_F(guest_roster_test, a_guest_that_is_gone_leaves_its_host_to_the_next) {
  join_launched(1);
  EXPECT_EQ(join(7, "h9"), 3u);
  roster.gone(3, 7, "lost", now);
  EXPECT_EQ(join(8, "h8"), 3u);
  EXPECT_EQ(roster.name(3), "h8");
  EXPECT_EQ(roster.all().size(), 4u);
}

/// Three hosts whose agents come by themselves. The ranks of each claim a core
/// and a GPU each.
class claim_roster_test : public host_roster_test {
protected:
  claim_roster_test() { make(0, {2, 2, 1}); }

  void make(int min_ranks, const std::vector<int>& slots, int per_host = 0) {
    host_limits limits;
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
};

TEST_F(claim_roster_test, refuses_a_host_that_cannot_hold_its_ranks) {
  auto refused = admit(with("h1", 1, 0));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ec::invalid_config);
  EXPECT_EQ(refused.error().message, "2 workers ask for 2 gpus, host h1 has 0");
  EXPECT_EQ(admit(with("h2", 2, 2)).value(), 1u) << "its place stays free";
  EXPECT_EQ(roster.shortage(1), "");
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

TEST_F(guest_roster_test, a_guest_that_holds_no_rank_is_refused) {
  host_limits limits;
  limits.min_ranks = 2;
  limits.max_ranks = 6;
  limits.claim = {0, 1};
  auto own = facts(100, "h0");
  own.gpus = 2;
  launch(2, limits, own);
  EXPECT_EQ(admit(facts(7, "h9")).error().message,
            "1 worker asks for 1 gpus, host h9 has 0");
  EXPECT_EQ(roster.all().size(), 3u);
  auto guest = facts(8, "h9");
  guest.gpus = 1;
  EXPECT_EQ(admit(guest).value(), 3u);
  EXPECT_EQ(roster.at(3).room.ranks, 1);
}

} // namespace
} // namespace troupe::internal
