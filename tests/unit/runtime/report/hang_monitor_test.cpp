#include "troupe/runtime/report/hang_monitor.hpp"

#include <gmock/gmock.h>

#include "tests/support/start_time.hpp"

namespace troupe::internal {
namespace {

using namespace std::chrono_literals;
using test::t0;
using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;

rank_wait wait_of(std::string what, hang_monitor::time_point since = t0) {
  return {std::move(what), {0, 2}, {1}, since};
}

/// Ranks that a test moves second by second.
class hang_monitor_test : public testing::Test {
protected:
  /// Asks every second until *end*; returns what was decided on the way.
  hang_verdict pass_until(hang_monitor::time_point end) {
    hang_verdict all;
    for (; now < end; now += 1s) {
      ticks();
      auto x = monitor.check(waits, look, now);
      all.named.insert(all.named.end(), x.named.begin(), x.named.end());
      all.over.insert(all.over.end(), x.over.begin(), x.over.end());
      all.show_stacks.insert(all.show_stacks.end(), x.show_stacks.begin(),
                             x.show_stacks.end());
      for (auto& [rank, why] : x.hung)
        all.hung.emplace(rank, std::to_string((now - t0) / 1s) + ": " + why);
    }
    return all;
  }

  hang_monitor monitor{3, {std::nullopt, 60'000ms}};
  std::vector<rank_wait> waits{wait_of("report 3")};
  rank_look seen{"in its train loop", process_vitals{}};
  std::function<void()> ticks = [] {};
  hang_monitor::look_function look = [this](int) { return seen; };
  hang_monitor::time_point now = t0;
};

TEST_F(hang_monitor_test, names_a_rank_that_others_wait_for_after_ten_seconds) {
  seen.vitals.reset();
  EXPECT_THAT(pass_until(t0 + 10s).named, IsEmpty());
  EXPECT_THAT(pass_until(t0 + 11s).named,
              ElementsAre("report 3: rank 1 is missing for 10 s, ranks 0, 2 "
                          "wait; rank 1 is in its train loop"));
}

TEST_F(hang_monitor_test, names_what_all_ranks_are_in_and_ends_none) {
  waits = {{"collective 4", {0, 1, 2}, {}, t0}};
  for (int rank = 0; rank < 3; ++rank)
    monitor.stepped(rank, 2.0);
  EXPECT_THAT(pass_until(t0 + 16s).named, IsEmpty());
  auto verdict = pass_until(t0 + 100s);
  ASSERT_FALSE(verdict.named.empty());
  EXPECT_THAT(
    verdict.named.front(),
    testing::StartsWith("collective 4: all ranks are in it for 16 s"));
  EXPECT_THAT(verdict.hung, IsEmpty());
  EXPECT_THAT(verdict.show_stacks, IsEmpty());
}

TEST_F(hang_monitor_test, gives_a_rank_three_of_its_own_usual_steps_more) {
  for (double step : {2.0, 1.0, 90.0, 2.0, 2.0}) // One was an evaluation.
    monitor.stepped(1, step);
  monitor.stepped(0, 100.0);
  EXPECT_THAT(pass_until(t0 + 16s).named, IsEmpty());
  EXPECT_EQ(pass_until(t0 + 17s).named.size(), 1u);
}

TEST_F(hang_monitor_test, names_a_wait_again_at_growing_intervals) {
  ticks = [this] { seen.vitals->cpu += 1s; };
  std::vector<int> at;
  for (int second = 0; second < 600; ++second)
    if (!pass_until(t0 + std::chrono::seconds{second + 1}).named.empty())
      at.push_back(second);
  EXPECT_THAT(at, ElementsAre(10, 40, 100, 220, 460));
}

TEST_F(hang_monitor_test, asks_for_stacks_once_per_wait) {
  ticks = [this] { seen.vitals->cpu += 1s; };
  EXPECT_THAT(pass_until(t0 + 300s).show_stacks, ElementsAre(1));
}

TEST_F(hang_monitor_test, says_when_a_named_wait_is_over) {
  pass_until(t0 + 15s);
  waits.clear();
  EXPECT_THAT(pass_until(t0 + 17s).over,
              ElementsAre("report 3 is over, after 15 s"));
  waits = {wait_of("report 4", t0 + 20s)};
  pass_until(t0 + 22s);
  waits.clear();
  EXPECT_THAT(pass_until(t0 + 24s).over, IsEmpty()) << "it was never named";
}

TEST_F(hang_monitor_test, begins_again_with_every_wait) {
  ticks = [this] { seen.vitals->cpu += 1s; };
  pass_until(t0 + 35s);
  waits = {wait_of("report 4", t0 + 35s)};
  EXPECT_THAT(pass_until(t0 + 45s).named, IsEmpty());
  EXPECT_EQ(pass_until(t0 + 46s).named.size(), 1u);
}

// As of a rank on another host, whose times travel as ages.
TEST_F(hang_monitor_test, follows_a_wait_whose_begin_is_known_roughly) {
  int second = 0;
  ticks = [&] { waits = {wait_of("report 3", t0 + ++second % 3 * 7ms)}; };
  auto verdict = pass_until(t0 + 70s);
  EXPECT_EQ(verdict.named.size(), 2u);
  EXPECT_THAT(verdict.over, IsEmpty());
  EXPECT_THAT(verdict.show_stacks, ElementsAre(1));
  EXPECT_TRUE(verdict.hung.contains(1));
}

TEST_F(hang_monitor_test, never_ends_a_rank_that_works) {
  for (auto work : std::vector<std::function<void()>>{
         [this] { seen.vitals->cpu += 2ms; }, // 0.2 % of a core
         [this] { seen.vitals->io_bytes += 1; },
         [this] { seen.vitals->wake_ups += 5; }, // receives over a socket
         [this] { seen.vitals->busy = true; }}) {
    monitor = hang_monitor{3, {std::nullopt, 60'000ms}};
    seen.vitals = process_vitals{};
    ticks = work;
    now = t0;
    EXPECT_TRUE(pass_until(t0 + 3600s).hung.empty());
  }
}

TEST_F(hang_monitor_test,
       a_thread_that_wakes_up_each_second_does_not_count_as_work) {
  ticks = [this] { seen.vitals->wake_ups += 1; };
  EXPECT_FALSE(pass_until(t0 + 63s).hung.empty());
}

TEST_F(hang_monitor_test, activity_every_59_seconds_is_enough) {
  int second = 0;
  ticks = [&] { seen.vitals->cpu += ++second % 59 == 0 ? 5ms : 0ms; };
  EXPECT_TRUE(pass_until(t0 + 3600s).hung.empty());
}

TEST_F(hang_monitor_test, ends_a_rank_without_activity_for_a_minute) {
  ticks = [this] { seen.vitals->cpu += 500us; }; // threads that wake up
  EXPECT_TRUE(pass_until(t0 + 60s).hung.empty());
  auto hung = pass_until(t0 + 62s).hung;
  ASSERT_TRUE(hung.contains(1));
  EXPECT_EQ(hung.at(1),
            "60: report 3: rank 1 is missing for 60 s, ranks 0, 2 wait; rank 1 "
            "is in its train loop, without CPU time or I/O for 60 s");
}

TEST_F(hang_monitor_test, ends_a_stopped_rank_whatever_its_children_do) {
  seen.vitals->stopped = true;
  ticks = [this] {
    seen.vitals->cpu += 1s;
    seen.vitals->busy = true;
  };
  auto verdict = pass_until(t0 + 62s);
  EXPECT_TRUE(verdict.hung.contains(1));
  EXPECT_THAT(verdict.named, Each(testing::HasSubstr("stopped by a signal")));
  EXPECT_THAT(verdict.show_stacks, IsEmpty()) << "it would not answer";
}

TEST_F(hang_monitor_test, a_rank_that_no_one_waits_for_is_left_alone) {
  seen.vitals->stopped = true;
  pass_until(t0 + 50s);
  waits.clear();
  EXPECT_TRUE(pass_until(t0 + 500s).hung.empty());
  waits = {wait_of("report 4", t0 + 500s)};
  EXPECT_TRUE(pass_until(t0 + 559s).hung.empty()) << "counts from here";
  EXPECT_FALSE(pass_until(t0 + 562s).hung.empty());
}

TEST_F(hang_monitor_test, a_gap_between_checks_is_not_inactivity_of_the_rank) {
  pass_until(t0 + 5s);
  now += 10min; // the driver was stopped
  EXPECT_TRUE(pass_until(now + 3s).hung.empty());
}

TEST_F(hang_monitor_test, ends_no_rank_whose_vitals_cannot_be_had) {
  seen.vitals.reset();
  EXPECT_TRUE(pass_until(t0 + 3600s).hung.empty());
}

TEST_F(hang_monitor_test, ends_no_rank_for_idleness_without_a_limit) {
  monitor = hang_monitor{3, {std::nullopt, std::nullopt}};
  EXPECT_TRUE(pass_until(t0 + 3600s).hung.empty());
}

TEST_F(hang_monitor_test, the_users_own_limit_ends_the_missing_ranks) {
  monitor = hang_monitor{3, {500ms, std::nullopt}};
  ticks = [this] { seen.vitals->cpu += 1s; };
  rank_wait wait{"barrier 2", {1, 2}, {0}, t0};
  EXPECT_TRUE(monitor.check({wait}, look, t0 + 499ms).hung.empty());
  auto late = monitor.check({wait}, look, t0 + 500ms).hung;
  ASSERT_TRUE(late.contains(0));
  EXPECT_THAT(late.at(0),
              testing::StartsWith(
                "barrier 2: rank 0 is missing for 500 ms, ranks 1, 2 wait"));
  wait.is_limited = false;
  EXPECT_TRUE(monitor.check({wait}, look, t0 + 600ms).hung.empty());
}

TEST_F(hang_monitor_test, a_limit_does_not_count_time_without_checks) {
  monitor = hang_monitor{3, {30s, std::nullopt}};
  EXPECT_TRUE(pass_until(t0 + 2s).hung.empty());
  waits.push_back(wait_of("report 4", t0 + 40s)); // began meanwhile
  monitor.checked_after(60s);
  EXPECT_TRUE(monitor.check(waits, look, t0 + 62s).hung.empty());
  now = t0 + 63s;
  EXPECT_TRUE(pass_until(t0 + 90s).hung.empty());
  EXPECT_FALSE(pass_until(t0 + 91s).hung.empty());
}

TEST_F(hang_monitor_test, no_wait_takes_the_time_without_checks) {
  seen.vitals.reset();
  EXPECT_THAT(pass_until(t0 + 3s).named, IsEmpty());
  monitor.checked_after(41s); // The last check was at 2 s.
  now = t0 + 43s;
  EXPECT_THAT(pass_until(t0 + 51s).named, IsEmpty());
  EXPECT_THAT(pass_until(t0 + 52s).named,
              ElementsAre("report 3: rank 1 is missing for 10 s, ranks 0, 2 "
                          "wait; rank 1 is in its train loop"));
  monitor.checked_after(60s);
  now = t0 + 111s;
  EXPECT_THAT(pass_until(t0 + 131s).named, IsEmpty());
  EXPECT_EQ(pass_until(t0 + 142s).named.size(), 1u) << "30 s after the first";
  monitor.checked_after(60s);
  waits.clear();
  EXPECT_THAT(monitor.check(waits, look, t0 + 201s).over,
              ElementsAre("report 3 is over, after 40 s"));
}

TEST_F(hang_monitor_test, knows_how_long_the_driver_was_stopped_in_a_wait) {
  pass_until(t0 + 3s);
  EXPECT_EQ(monitor.standstill(t0, t0 + 4s, 2s), 0s) << "a check that is late";
  EXPECT_EQ(monitor.standstill(t0, t0 + 42s, 40s), 40s);
  EXPECT_EQ(monitor.standstill(t0 + 30s, t0 + 42s, 40s), 12s);
  monitor.checked_after(40s);
  now = t0 + 42s;
  pass_until(t0 + 44s);
  EXPECT_EQ(monitor.standstill(t0, t0 + 44s, 1s), 40s);
  EXPECT_EQ(monitor.standstill(t0 + 43s, t0 + 44s, 1s), 0s);
}

TEST_F(hang_monitor_test, counts_none_of_many_standstills_as_waiting) {
  for (int i = 1; i <= 100; ++i) {
    monitor.checked_after(60s);
    monitor.check(waits, look, t0 + i * 62s);
  }
  EXPECT_EQ(monitor.standstill(t0, t0 + 6200s, 0s), 6000s);
  EXPECT_EQ(monitor.standstill(t0 + 6138s, t0 + 6200s, 0s), 60s);
}

TEST_F(hang_monitor_test, names_a_rank_before_a_short_limit_ends_it) {
  monitor = hang_monitor{3, {std::nullopt, 800ms}};
  EXPECT_EQ(monitor.interval(), 50ms);
  bool named = false;
  for (now = t0;; now += 50ms) {
    auto verdict = monitor.check(waits, look, now);
    named |= !verdict.named.empty();
    if (!verdict.hung.empty())
      break;
    ASSERT_LT(now, t0 + 2s);
  }
  EXPECT_TRUE(named);
  EXPECT_GE(now, t0 + 800ms);
}

TEST_F(hang_monitor_test, a_stack_dump_does_not_count_as_activity) {
  pass_until(t0 + 11s); // asked for its stacks at 10 s
  seen.vitals->cpu += 50ms;
  seen.vitals->io_bytes += 4096;
  EXPECT_TRUE(pass_until(t0 + 60s).hung.empty());
  EXPECT_FALSE(pass_until(t0 + 63s).hung.empty());
}

TEST_F(hang_monitor_test, describes_the_first_of_many_missing_ranks) {
  hang_monitor many{20, {500ms, std::nullopt}};
  rank_wait wait{"barrier 2", {0}, {}, t0};
  for (int rank = 1; rank < 20; ++rank)
    wait.missing.push_back(rank);
  auto text = many.check({wait}, look, t0 + 1s).hung.at(19);
  EXPECT_THAT(text, testing::HasSubstr("rank 4 is in its"));
  EXPECT_EQ(text.find("rank 5 is in its"), std::string::npos);
}

collective_place in(std::uint64_t entered,
                    hang_monitor::time_point since = t0) {
  return {true, since, entered, false};
}

collective_place behind(std::uint64_t entered) {
  return {true, t0, entered, true};
}

collective_place out(std::uint64_t entered) {
  return {false, {}, entered, false};
}

TEST(rank_wait_test, a_collective_waits_for_ranks_that_have_not_come_so_far) {
  EXPECT_FALSE(collective_wait({out(0), out(0)}));
  EXPECT_FALSE(collective_wait({in(4), out(4)})) << "one is through";
  EXPECT_FALSE(collective_wait({out(4), out(3)})) << "no one waits";
  EXPECT_FALSE(collective_wait({in(4)})) << "one rank alone";
  auto wait = collective_wait({in(5, t0 + 2s), out(4), in(5, t0 + 1s)});
  ASSERT_TRUE(wait);
  EXPECT_EQ(wait->what, "collective 5");
  EXPECT_THAT(wait->waiting, ElementsAre(0, 2));
  EXPECT_THAT(wait->missing, ElementsAre(1));
  EXPECT_EQ(wait->since, t0 + 1s);
  EXPECT_FALSE(wait->is_limited);
}

TEST(rank_wait_test, the_start_of_a_group_waits_for_ranks_that_never_came) {
  using starts = std::vector<start_place>;
  EXPECT_FALSE(start_wait(starts{{}, {}}, {})) << "no one waits";
  EXPECT_FALSE(start_wait(starts{{true, t0}, {true, {}}}, {})) << "all came";
  starts ranks{{true, t0 + 2s}, {}, {true, t0 + 1s}, {}, {true, {}}};
  auto wait = start_wait(ranks, {3});
  ASSERT_TRUE(wait);
  EXPECT_EQ(wait->what, "the start of the group");
  EXPECT_THAT(wait->waiting, ElementsAre(0, 2));
  EXPECT_THAT(wait->missing, ElementsAre(1));
  EXPECT_EQ(wait->since, t0 + 1s);
  EXPECT_FALSE(wait->is_limited);
  EXPECT_FALSE(start_wait(ranks, {1, 3})) << "they wait, too";
}

TEST(rank_wait_test, a_collective_waits_for_a_rank_that_is_stopped_inside) {
  auto wait = collective_wait({in(5), behind(5), in(5)});
  ASSERT_TRUE(wait);
  EXPECT_THAT(wait->missing, ElementsAre(1));
  EXPECT_FALSE(collective_wait({out(5), behind(5)})) << "no one waits";
}

// Others have gone on: they have sent what it waits for.
TEST(rank_wait_test, a_rank_that_waits_in_an_earlier_collective_is_there) {
  auto wait = collective_wait({in(6, t0 + 2s), in(5), out(5)});
  ASSERT_TRUE(wait);
  EXPECT_EQ(wait->what, "collective 6");
  EXPECT_THAT(wait->waiting, ElementsAre(0, 1));
  EXPECT_THAT(wait->missing, ElementsAre(2));
  EXPECT_EQ(wait->since, t0 + 2s) << "rank 2 has passed the earlier one";
  wait = collective_wait({in(6), in(5)});
  ASSERT_TRUE(wait);
  EXPECT_THAT(wait->missing, IsEmpty());
  EXPECT_FALSE(collective_wait({out(6), in(5)})) << "one is through";
}

TEST(rank_wait_test, a_collective_that_holds_all_ranks_lacks_none) {
  auto wait = collective_wait({in(4, t0 + 2s), in(4, t0 + 1s)});
  ASSERT_TRUE(wait);
  EXPECT_THAT(wait->missing, IsEmpty());
  EXPECT_EQ(wait->since, t0 + 2s);
  EXPECT_EQ(to_string(*wait, t0 + 97s),
            "collective 4: all ranks are in it for 95 s: the network may be "
            "down, or they call different ones");
}

TEST(rank_wait_test, ranks_that_wait_elsewhere_are_not_to_blame) {
  std::vector<rank_wait> waits{{"report 1", {0}, {1, 2, 3, 4}, t0},
                               {"collective 5", {1, 2}, {0, 3, 4}, t0}};
  blame_awaited(waits, {3}, {});
  EXPECT_THAT(waits[0].missing, ElementsAre(4));
  EXPECT_THAT(waits[1].missing, ElementsAre(4));
}

TEST(rank_wait_test, ranks_that_wait_for_each_other_are_both_to_blame) {
  std::vector<rank_wait> waits{{"report 1", {0}, {1}, t0},
                               {"collective 5", {1}, {0}, t0}};
  blame_awaited(waits, {}, {});
  EXPECT_THAT(waits[0].missing, ElementsAre(1));
  EXPECT_THAT(waits[1].missing, ElementsAre(0));
}

TEST(rank_wait_test, a_stopped_rank_of_a_circle_is_alone_to_blame) {
  std::vector<rank_wait> waits{{"report 1", {0}, {1}, t0},
                               {"collective 5", {1, 2}, {0}, t0}};
  blame_awaited(waits, {}, {0});
  ASSERT_EQ(waits.size(), 2u) << "the limits of both hold";
  EXPECT_EQ(to_string(waits[0], t0 + 30s),
            "report 1: rank 0 is missing for 30 s");
  EXPECT_EQ(to_string(waits[1], t0 + 30s),
            "collective 5: rank 0 is missing for 30 s, ranks 1, 2 wait");
}

TEST(rank_wait_test, a_stopped_rank_outside_of_a_circle_is_not_to_blame) {
  // Rank 1 asks the driver.
  std::vector<rank_wait> waits{{"report 1", {0, 3}, {1}, t0}};
  blame_awaited(waits, {1}, {3});
  EXPECT_THAT(waits[0].missing, ElementsAre(1));
  EXPECT_THAT(waits[0].waiting, ElementsAre(0, 3));
}

TEST(rank_wait_test, a_stopped_rank_may_wait_for_one_that_works) {
  std::vector<rank_wait> waits{{"report 1", {0}, {1}, t0}};
  blame_awaited(waits, {}, {0});
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_THAT(waits[0].missing, ElementsAre(1));
}

TEST(rank_wait_test, the_run_waits_for_the_last_loop) {
  EXPECT_FALSE(end_wait({{}}, {}, {})) << "no one waits for a world of one";
  EXPECT_FALSE(end_wait({{t0}, {}, {}}, {}, {})) << "two may need each other";
  auto wait = end_wait({{t0}, {}, {t0 + 2s}}, {}, {});
  ASSERT_TRUE(wait);
  EXPECT_EQ(to_string(*wait, t0 + 5s),
            "the end of the run: rank 1 is missing for 3 s, ranks 0, 2 wait");
  EXPECT_FALSE(wait->is_limited);
  EXPECT_FALSE(end_wait({{t0}, {}, {t0}}, {1}, {})) << "it waits itself";
  EXPECT_FALSE(end_wait({{t0}, {t0}}, {}, {}));
}

TEST(rank_wait_test, the_run_waits_for_every_loop_that_a_signal_has_stopped) {
  auto wait = end_wait({{{}, t0 + 2s}, {}, {{}, t0}}, {0}, {});
  ASSERT_TRUE(wait);
  EXPECT_EQ(to_string(*wait, t0 + 5s),
            "the end of the run: ranks 0, 2 are missing for 5 s");
  EXPECT_TRUE(end_wait({{{}, t0}}, {}, {})) << "a world of one";
  EXPECT_FALSE(end_wait({{}, {{}, t0}}, {}, {{"report 1", {0}, {1}, t0}}))
    << "it is named there";
}

TEST(rank_wait_test, lists_many_ranks_in_short) {
  EXPECT_EQ(rank_list({4}), "rank 4");
  EXPECT_EQ(rank_list({0, 2, 5}), "ranks 0, 2, 5");
  std::vector<int> many(100);
  for (int i = 0; i < 100; ++i)
    many[static_cast<std::size_t>(i)] = i;
  EXPECT_EQ(rank_list(many), "ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, "
                             "13, 14, 15 and 84 more");
}

} // namespace
} // namespace troupe::internal
