// Hosts that the run launches, and guests that come beside them.

#include <algorithm>
#include <variant>
#include <vector>

#include <gmock/gmock.h>

#include "tests/unit/runtime/hosts/host_roster_fixture.hpp"

namespace troupe::internal::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

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

// `agent_launcher` has prepared them under these numbers.
TEST_F(launched_roster_test, first_launches_have_the_numbers_of_their_hosts) {
  EXPECT_THAT(launches, testing::ElementsAre(1, 2));
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

TEST_F(launched_roster_test, gives_up_no_host_that_saw_another_attempt) {
  ASSERT_TRUE(admit(launched(launches[0], 7)));
  last = roster.checked(1, 7, {ec::conflict, "late"}, now).value();
  EXPECT_THAT(last, IsEmpty());
  EXPECT_EQ(admit(launched(launches[0], 7)).value(), 1u);
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

TEST_F(launched_roster_test, gives_up_no_host_whose_gpus_may_show_late) {
  host_limits limits{.join = std::chrono::milliseconds{500}};
  limits.claim = {0, 1};
  auto own = facts(100, "h0");
  own.gpus = 1;
  launch(1, limits, own);
  auto x = launched(launches[0], 7);
  x.gpus = 1;
  ASSERT_TRUE(admit(x));
  roster.checked(1, 7, {}, now);
  roster.gone(1, 7, "lost", now);
  now += std::chrono::seconds{1};
  roster.gather(now);
  auto again = launched(roster.at(1).launch, 8);
  auto refused = admit(again);
  ASSERT_FALSE(refused);
  EXPECT_TRUE(asks_again(refused.error()));
  EXPECT_THAT(last, IsEmpty());
  EXPECT_THAT(missing(), HasSubstr("h1: 1 worker asks for 1 gpus"));
  again.gpus = 1;
  EXPECT_EQ(admit(again).value(), 1u);
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

TEST_F(guest_roster_test, awaits_no_host_that_was_given_up) {
  EXPECT_FALSE(admit(launched(launches[0], 7, "bb")));
  EXPECT_EQ(roster.waiting_text(),
            "waiting for the agents of h2 at 10.0.0.1 port 7");
}

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

TEST_F(guest_roster_test, a_host_that_is_left_out_keeps_no_guest_away) {
  join_launched(1);
  join_launched(2);
  roster.attempt_started({0, 1, 2});
  last = roster.start_failed({2}, now, now);
  ASSERT_EQ(count<host_left_out>(), 1);
  EXPECT_EQ(join(7, "h9"), 3u);
  EXPECT_THAT(roster.usable(), testing::ElementsAre(0u, 1u, 3u));
  EXPECT_EQ(admit(facts(8, "h8")).error().code, ec::conflict);
  now += std::chrono::minutes{1};
  roster.check(now);
  EXPECT_THAT(roster.usable(), testing::ElementsAre(0u, 1u, 2u, 3u));
  auto shares = roster.shares_on(roster.usable(), {2, 6});
  EXPECT_EQ(ranks_in(shares), 6);
  EXPECT_EQ(shares[2].ranks, 0) << "it is a spare";
}

// It would have the same machine, and fail there alike.
TEST_F(guest_roster_test, a_guest_beside_an_agent_that_is_left_out_waits) {
  join_launched(1);
  auto broken = launched(launches[1], 2);
  broken.boot = "b2";
  ASSERT_TRUE(admit(broken));
  roster.checked(2, 2, {}, now);
  roster.attempt_started({0, 1, 2});
  roster.start_failed({2}, now, now);
  auto guest = facts(7, "its-own-name");
  guest.boot = "b2";
  EXPECT_EQ(admit(guest).error().code, ec::conflict);
  roster.gone(2, 2, "ended by hand", now);
  EXPECT_TRUE(admit(guest));
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
} // namespace troupe::internal::test
