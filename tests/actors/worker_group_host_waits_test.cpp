// The worker group while ranks wait for those of another host.

#include <csignal>

#include "tests/actors/joining_host_fixture.hpp"

namespace troupe::internal::test {

using testing::HasSubstr;

/// Ranks 0 and 1 on one host, 2 and 3 on another, in collectives. The first of
/// a host passes on what the others have summed.
class two_leaders_test : public joining_host_test {
protected:
  two_leaders_test() {
    plan.world = {4, 4};
    plan.hang_timeout = ms{60'000};
    spawn_group({{{"", 0, 2, 2}, {"", 2, 2, 2}},
                 own_facts(),
                 host_limits{.join = ms{1500}},
                 "10.0.0.1 port 7"});
    start();
    join(1);
    play(theirs);
    for (int rank = 0; rank < 4; ++rank) {
      player(rank).rise(rank);
      player(rank).launcher->lives[rank]; // idle
    }
  }

  played_ranks& player(int rank) { return rank < 2 ? ranks : theirs; }

  segment_rank& shown(int rank) {
    auto found = shared_segment::attach(
      player(rank).launcher->launched[0].segment, {plan.run_id, ranks.attempt});
    return segments.emplace_back(std::move(found.value())).rank(rank % 2);
  }

  /// *rank* takes *steps* steps in its next collective.
  void enter(int rank, int steps) {
    auto& x = shown(rank);
    x.activity.enter_collective();
    x.activity.in_collective = now();
    for (int i = 0; i < steps; ++i)
      x.advance();
  }

  /// All ranks end, and only *rank* is to blame.
  void expect_blamed(int rank, const std::string& why) {
    pass_alive(65, 1);
    for (int each = 0; each < 4; ++each)
      player(each).kill(each, SIGKILL);
    ASSERT_EQ(record->failed.size(), 1u);
    EXPECT_EQ(failure_of(rank).kind, kind::timeout);
    EXPECT_THAT(failure_of(rank).what, HasSubstr(why));
    EXPECT_EQ(record->failed[0].ranks.size(), 1u) << "the others wait";
  }

  played_ranks theirs{system};
};

TEST_F(two_leaders_test, wait_for_a_rank_of_another_host) {
  enter(1, 1);
  enter(2, 1);
  enter(3, 2); // Without the sum of the other host, which rank 2 waits for.
  expect_blamed(0, "collective 1: rank 0 is missing");
}

TEST_F(two_leaders_test, end_with_their_hosts_if_they_are_stopped) {
  for (int rank : {0, 1, 2, 3})
    enter(rank, rank % 2 + 1);
  elsewhere->lives[2].stopped = true;
  expect_blamed(2, "collective 1: rank 2 is missing");
}

TEST_F(two_leaders_test, may_wait_for_each_other_while_the_network_is_down) {
  for (int rank : {0, 1, 2, 3})
    enter(rank, rank % 2 + 1);
  for (int rank : {0, 1}) // They have sent what the others wait for.
    enter(rank, 2 - rank);
  pass_alive(600, 1);
  EXPECT_TRUE(record->failed.empty());
  ASSERT_FALSE(record->warnings.empty());
  EXPECT_THAT(record->warnings[0].text, HasSubstr("the network may be down"));
}

TEST_F(two_leaders_test, may_wait_for_data_while_others_report) {
  for (int rank : {0, 1, 2, 3})
    enter(rank, rank % 2 + 1);
  for (int rank : {0, 1}) {
    shown(rank).activity.leave_collective();
    ranks.report(rank, 0);
  }
  pass_alive(600, 1);
  EXPECT_TRUE(record->failed.empty());
  ASSERT_FALSE(record->warnings.empty());
  EXPECT_THAT(record->warnings[0].text,
              HasSubstr("report 0: ranks 2, 3 are missing"));
}

} // namespace troupe::internal::test
