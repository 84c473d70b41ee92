#include "troupe/runtime/report/rank_meetings.hpp"

#include <random>
#include <set>

#include <gmock/gmock.h>

#include "tests/support/start_time.hpp"

namespace troupe::internal {
namespace {

using namespace std::chrono_literals;
using test::t0;
using testing::ElementsAre;

rank_report report_from(int rank, std::uint64_t index) {
  return {.rank = rank, .index = index};
}

barrier_arrival barrier_of(int rank, std::uint64_t sequence = 0) {
  return {rank, sequence, meeting_kind::barrier, {}, {}};
}

barrier_arrival broadcast_of(int rank, std::uint64_t sequence = 0,
                             error refusal = {}) {
  return {rank, sequence, meeting_kind::broadcast, {}, std::move(refusal)};
}

TEST(rank_meetings_test, a_report_never_meets_a_barrier) {
  rank_meetings group{3, 7};
  ASSERT_TRUE(group.add(report_from(1, 7), true, t0));
  EXPECT_FALSE(group.mismatch());
  ASSERT_TRUE(group.arrive(barrier_of(2), t0));
  auto stuck = group.mismatch();
  ASSERT_TRUE(stuck);
  EXPECT_THAT(stuck->ranks, ElementsAre(1, 2));
  EXPECT_EQ(stuck->reason.code, ec::conflict);
  EXPECT_EQ(stuck->reason.message, "the ranks are in different calls: rank 1 "
                                   "in report 7, rank 2 in barrier 0");
}

TEST(rank_meetings_test,
     a_broadcast_that_rank_0_refused_gives_its_reason_to_late_ranks) {
  rank_meetings group{3, 0};
  ASSERT_TRUE(
    group.arrive(broadcast_of(0, 0, {ec::invalid_argument, "too big"}), t0));
  ASSERT_TRUE(group.add(report_from(1, 0), true, t0));
  ASSERT_TRUE(group.add(report_from(2, 0), true, t0));
  EXPECT_EQ(group.mismatch()->reason.message,
            "the ranks are in different calls: rank 0 in broadcast 0 (which "
            "rank 0 refused: too big), ranks 1, 2 in report 0");
}

TEST(rank_meetings_test, a_rank_that_does_not_wait_for_its_report_may_come) {
  rank_meetings group{2, 0};
  ASSERT_TRUE(group.add(report_from(0, 0), false, t0));
  ASSERT_TRUE(group.arrive(barrier_of(1), t0));
  EXPECT_FALSE(group.mismatch());
  EXPECT_TRUE((*group.arrive(barrier_of(0), t0)).has_value());
  EXPECT_TRUE((*group.add(report_from(1, 0), true, t0)).has_value());
}

TEST(rank_meetings_test, a_full_window_of_reports_is_a_wait_for_the_oldest) {
  rank_meetings group{2, 5};
  auto ahead = static_cast<std::uint64_t>(max_reports_ahead);
  for (std::uint64_t i = 0; i < ahead; ++i)
    ASSERT_TRUE(group.add(report_from(0, 5 + i), false, t0));
  ASSERT_TRUE(group.arrive(barrier_of(1), t0));
  EXPECT_FALSE(group.mismatch());
  EXPECT_TRUE(group.waits().at(0).missing == std::vector<int>{0});
  ASSERT_TRUE(group.add(report_from(0, 5 + ahead), false, t0));
  EXPECT_EQ(group.mismatch()->reason.message,
            "the ranks are in different calls: rank 0 in report 5, rank 1 in "
            "barrier 0");
}

TEST(rank_meetings_test,
     a_report_that_is_being_committed_needs_no_further_rank) {
  rank_meetings group{2, 0};
  ASSERT_TRUE(group.add(report_from(0, 0), false, t0));
  ASSERT_TRUE(group.arrive(barrier_of(0), t0));
  ASSERT_TRUE((*group.add(report_from(1, 0), true, t0 + 1s)).has_value());
  EXPECT_FALSE(group.mismatch());
  EXPECT_TRUE(group.waits().empty()) << "rank 1 waits for the disk";
  group.committed(0, t0 + 60s);
  auto waits = group.waits();
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_THAT(waits[0].missing, ElementsAre(1));
  EXPECT_EQ(waits[0].since, t0 + 60s);
}

TEST(rank_meetings_test, a_rank_that_drains_its_reports_waits_for_the_last) {
  rank_meetings group{2, 0};
  ASSERT_TRUE(group.add(report_from(0, 0), false, t0));
  ASSERT_TRUE(group.arrive(barrier_of(1), t0));
  group.await_reports(0, t0);
  EXPECT_TRUE(group.mismatch());
  group.await_reports(9, t0);
}

TEST(rank_meetings_test,
     knows_which_ranks_are_missing_in_a_report_and_since_when) {
  rank_meetings group{4, 0};
  EXPECT_TRUE(group.waits().empty());
  ASSERT_TRUE(group.add(report_from(3, 0), true, t0 + 1s));
  ASSERT_TRUE(group.add(report_from(1, 0), true, t0 + 2s));
  auto wait = group.report_wait();
  ASSERT_TRUE(wait);
  EXPECT_EQ(wait->what, "report 0");
  EXPECT_THAT(wait->waiting, ElementsAre(1, 3));
  EXPECT_THAT(wait->missing, ElementsAre(0, 2));
  EXPECT_EQ(wait->since, t0 + 1s);
  EXPECT_EQ(group.call_of(3), "report 0");
  EXPECT_EQ(group.call_of(0), "");
}

TEST(rank_meetings_test, a_rank_ahead_waits_only_since_it_has_to) {
  rank_meetings group{2, 0};
  ASSERT_TRUE(group.add(report_from(0, 0), false, t0));
  EXPECT_FALSE(group.report_wait()) << "rank 0 does not wait yet";
  ASSERT_TRUE(group.add(report_from(0, 1), true, t0 + 1s));
  EXPECT_EQ(group.report_wait()->what, "report 0");
  EXPECT_EQ(group.report_wait()->since, t0 + 1s);
  ASSERT_TRUE(group.add(report_from(1, 0), true, t0 + 20s));
  EXPECT_FALSE(group.report_wait()) << "the batch is being committed";
  group.committed(0, t0 + 21s);
  EXPECT_EQ(group.report_wait()->what, "report 1");
  EXPECT_EQ(group.report_wait()->since, t0 + 21s);
}

TEST(rank_meetings_test, blames_the_rank_that_is_missing_not_those_that_wait) {
  rank_meetings group{3, 0};
  ASSERT_TRUE(group.add(report_from(0, 0), false, t0));
  ASSERT_TRUE(group.add(report_from(0, 1), false, t0));
  ASSERT_TRUE(group.arrive(barrier_of(0), t0));
  ASSERT_TRUE(group.add(report_from(1, 0), true, t0 + 1s));
  // Rank 0 waits for both in the barrier, but rank 1 only waits for rank 2.
  EXPECT_FALSE(group.mismatch());
  for (auto& wait : group.waits())
    EXPECT_THAT(wait.missing, ElementsAre(2)) << wait.what;
}

TEST(rank_meetings_test, a_report_never_meets_a_collective_that_it_waits_for) {
  rank_meetings group{4, 7};
  std::vector<collective_calls> calls(4);
  for (auto rank : {0, 3})
    calls[static_cast<std::size_t>(rank)] = {3, 3, 5};
  for (auto rank : {1, 2})
    calls[static_cast<std::size_t>(rank)].called = 2;
  EXPECT_FALSE(group.mismatch(calls)) << "ranks 1 and 2 may come";
  ASSERT_TRUE(group.add(report_from(2, 7), true, t0));
  auto stuck = group.mismatch(calls);
  ASSERT_TRUE(stuck);
  EXPECT_THAT(stuck->ranks, ElementsAre(0, 2, 3));
  EXPECT_EQ(stuck->reason.code, ec::conflict);
  EXPECT_EQ(stuck->reason.message, "the ranks are in different calls: ranks 0, "
                                   "3 in collective 5, rank 2 in report 7");
}

/// Rank 0 awaits its third collective, and rank 1, which has called two, is in
/// a barrier or in a report that rank 0 has not sent.
class collective_meetings_test : public testing::TestWithParam<bool> {
protected:
  void SetUp() override {
    if (GetParam())
      ASSERT_TRUE(group.arrive(barrier_of(1), t0));
    else
      ASSERT_TRUE(group.add(report_from(1, 0), true, t0));
    ASSERT_TRUE(group.mismatch(calls));
  }

  rank_meetings group{2, 0};
  std::vector<collective_calls> calls{{3, 3, 3}, {2, 0, 2}};
};

TEST_P(collective_meetings_test, a_loop_with_one_under_way_may_come) {
  calls[0].awaited = 0;
  EXPECT_FALSE(group.mismatch(calls));
}

TEST_P(collective_meetings_test, a_call_that_all_have_made_ends) {
  calls[1].called = 3;
  EXPECT_FALSE(group.mismatch(calls));
}

TEST_P(collective_meetings_test, another_thread_may_call_it_yet) {
  calls[1].is_final = false;
  EXPECT_FALSE(group.mismatch(calls));
}

TEST_P(collective_meetings_test, a_thread_at_work_may_call_it_yet) {
  calls[1].is_idle = false;
  EXPECT_FALSE(group.mismatch(calls));
}

TEST_P(collective_meetings_test, calls_of_several_threads_say_nothing) {
  calls[0].is_final = false;
  EXPECT_FALSE(group.mismatch(calls));
}

TEST_P(collective_meetings_test, a_report_may_be_on_its_way) {
  calls[0].reported = 1;
  EXPECT_FALSE(group.mismatch(calls));
  ASSERT_TRUE(group.add(report_from(0, 0), false, t0));
  EXPECT_EQ(group.mismatch(calls).has_value(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(calls, collective_meetings_test, testing::Bool(),
                         [](auto& x) {
                           return x.param ? "barrier" : "report";
                         });

/// Ranks that call what they like, and what is true about them.
///
/// The truth is found by playing on: ranks that block nowhere may do whatever
/// others need, so a need is met if all those it concerns block nowhere; a rank
/// that still blocks when no more needs can be met is deadlocked.
class model {
public:
  enum class call {
    report,
    report_ahead,
    barrier,
    broadcast,
    drain,
    end,
    reduce,
    reduce_ahead,
  };
  static constexpr int ahead = 1;

  explicit model(int world_size)
    : group(world_size, 0, ahead), ranks(static_cast<std::size_t>(world_size)) {
  }

  bool runs(const int rank) const {
    auto& x = at(rank);
    return !x.ended && !x.needs_report && !x.needs_barrier && !awaits(x);
  }

  /// Has *rank* make *what*; returns whether the group found a fault.
  bool make(int rank, call what) {
    auto& x = at(rank);
    switch (what) {
      case call::report:
      case call::report_ahead:
        return report(rank, what == call::report);
      case call::barrier:
      case call::broadcast:
        return join(rank, what == call::barrier ? meeting_kind::barrier
                                                : meeting_kind::broadcast);
      case call::drain:
        if (x.sent > committed)
          x.needs_report = x.sent - 1;
        group.await_reports(rank, t0);
        return is_found();
      case call::end:
        x.ended = true;
        return !group.loop_ended(rank);
      case call::reduce:
        x.awaited = ++x.called;
        return is_found();
      case call::reduce_ahead:
        ++x.called;
        return is_found();
    }
    return false;
  }

  bool can_commit() const { return committed < paired; }

  void commit() {
    group.committed(committed, t0);
    for (auto& x : ranks)
      if (x.needs_report == committed)
        x.needs_report.reset();
    ++committed;
  }

  /// Whether ranks are stuck for good.
  bool stuck() const {
    std::set<meeting_kind> kinds;
    for (auto& x : ranks)
      if (x.needs_barrier)
        kinds.insert(x.kind);
    if (kinds.size() > 1)
      return true;
    for (auto& x : ranks) // What has been sent can never be paired.
      for (auto& y : ranks)
        if (x.ended && y.sent > x.sent)
          return true;
    std::set<int> free;
    for (bool changed = true; changed;) {
      changed = false;
      for (int rank = 0; rank < size(); ++rank)
        if (!free.contains(rank) && !at(rank).ended && is_met(rank, free))
          changed = free.insert(rank).second;
    }
    for (int rank = 0; rank < size(); ++rank)
      if (!at(rank).ended && !free.contains(rank))
        return true;
    return false;
  }

  /// Whether each wait names ranks that run, or are in a collective of which
  /// the group is not notified, and each rank that is not free to
  /// continue is in a wait or in a commit.
  void check_waits() const {
    for (auto& wait : group.waits()) {
      for (auto rank : wait.missing)
        EXPECT_TRUE(runs(rank) || awaits(at(rank)))
          << "rank " << rank << " is blamed";
      for (auto rank : wait.waiting)
        EXPECT_FALSE(runs(rank)) << "rank " << rank << " does not wait";
    }
  }

  int size() const { return static_cast<int>(ranks.size()); }

private:
  struct rank_state {
    std::uint64_t sent = 0;
    std::uint64_t joined = 0;
    std::optional<std::uint64_t> needs_report;
    bool needs_barrier = false;
    meeting_kind kind = meeting_kind::barrier;
    bool ended = false;
    std::uint64_t called = 0;
    std::uint64_t awaited = 0;
  };

  /// Whether a collective holds *x*: not all ranks have called it.
  bool awaits(const rank_state& x) const {
    return std::ranges::any_of(ranks,
                               [&x](auto& y) { return y.called < x.awaited; });
  }

  bool is_found() const {
    std::vector<collective_calls> calls;
    for (auto& x : ranks)
      calls.push_back({x.called, awaits(x) ? x.awaited : 0, x.called, 0, true});
    return group.mismatch() || group.mismatch(calls);
  }

  const rank_state& at(int rank) const {
    return ranks[static_cast<std::size_t>(rank)];
  }
  rank_state& at(int rank) { return ranks[static_cast<std::size_t>(rank)]; }

  bool report(int rank, bool waits) {
    auto& x = at(rank);
    auto index = x.sent++;
    if (waits)
      x.needs_report = index;
    else if (index >= committed + ahead)
      x.needs_report = index - ahead;
    auto batch = group.add(report_from(rank, index), waits, t0);
    if (!batch)
      return true;
    if (*batch)
      ++paired;
    return is_found();
  }

  bool join(int rank, meeting_kind kind) {
    auto& x = at(rank);
    x.needs_barrier = true;
    x.kind = kind;
    auto open = group.arrive({rank, x.joined++, kind, {}, {}}, t0);
    if (!open)
      return true;
    if (*open)
      for (auto& y : ranks)
        y.needs_barrier = false;
    return is_found();
  }

  bool is_met(int rank, const std::set<int>& free) const {
    auto& x = at(rank);
    for (int other = 0; other < size(); ++other) {
      auto& y = at(other);
      auto here = (!x.needs_report || y.sent > *x.needs_report)
                  && (!x.needs_barrier || y.joined == x.joined)
                  && y.called >= x.awaited;
      if (!here && !free.contains(other))
        return false;
    }
    return true;
  }

  rank_meetings group;
  std::vector<rank_state> ranks;
  std::uint64_t paired = 0;
  std::uint64_t committed = 0;
};

using call_list = std::vector<model::call>;

const call_list calls_of_the_group{
  model::call::report,    model::call::report_ahead, model::call::barrier,
  model::call::broadcast, model::call::drain,        model::call::end};

const call_list with_collectives{model::call::report, model::call::report_ahead,
                                 model::call::barrier, model::call::reduce,
                                 model::call::reduce_ahead};

/// Plays every way that ranks can continue from *state* in *depth* more of
/// *calls*. Returns how many states were compared.
std::size_t play(const model& state, int depth, std::size_t& stuck,
                 const call_list& calls = calls_of_the_group) {
  std::size_t states = 1;
  if (depth == 0)
    return states;
  for (int rank = 0; rank < state.size(); ++rank)
    for (std::size_t i = 0; i < calls.size() && state.runs(rank); ++i) {
      auto next = state;
      auto found = next.make(rank, calls[i]);
      EXPECT_EQ(found, next.stuck())
        << "rank " << rank << " makes call " << i << ", " << depth << " to go";
      if (found) {
        ++stuck;
        continue;
      }
      next.check_waits();
      states += play(next, depth - 1, stuck, calls);
      if (testing::Test::HasFailure())
        return states;
    }
  if (state.can_commit()) {
    auto next = state;
    next.commit();
    EXPECT_FALSE(next.stuck());
    next.check_waits();
    states += play(next, depth - 1, stuck, calls);
  }
  return states;
}

TEST(rank_meetings_test, finds_exactly_the_deadlocks_of_two_ranks) {
  std::size_t stuck = 0;
  EXPECT_GT(play(model{2}, 6, stuck), 10'000u);
  EXPECT_GT(stuck, 1'000u);
}

TEST(rank_meetings_test, finds_exactly_the_deadlocks_of_three_ranks) {
  std::size_t stuck = 0;
  EXPECT_GT(play(model{3}, 4, stuck), 5'000u);
  EXPECT_GT(stuck, 1'000u);
}

TEST(rank_meetings_test, finds_exactly_the_deadlocks_with_collectives) {
  std::size_t stuck = 0;
  EXPECT_GT(play(model{2}, 6, stuck, with_collectives), 10'000u);
  EXPECT_GT(play(model{3}, 4, stuck, with_collectives), 5'000u);
  EXPECT_GT(stuck, 2'000u);
}

TEST(rank_meetings_test, finds_exactly_the_deadlocks_in_long_runs) {
  std::mt19937 random{17};
  auto below = [&](int n) {
    return std::uniform_int_distribution<int>{0, n - 1}(random);
  };
  for (int round = 0; round < 2'000; ++round) {
    model state{2 + below(4)};
    // Most rounds mostly report, so that they live long.
    auto calls = static_cast<int>(calls_of_the_group.size());
    auto kinds = below(4) == 0 ? calls : 2;
    for (int step = 0; step < 60; ++step) {
      if (state.can_commit() && below(2) == 0) {
        state.commit();
        ASSERT_FALSE(state.stuck());
      }
      auto rank = below(state.size());
      if (!state.runs(rank))
        continue;
      auto what = below(20) == 0 ? below(calls) : below(kinds);
      auto found =
        state.make(rank, calls_of_the_group[static_cast<std::size_t>(what)]);
      ASSERT_EQ(found, state.stuck()) << "round " << round << ", step " << step;
      if (found)
        break;
      state.check_waits();
    }
  }
}

} // namespace
} // namespace troupe::internal
