#include "troupe/callbacks/report_page/journal_digest.hpp"

#include <gtest/gtest.h>

namespace troupe::internal {

namespace {

using std::chrono::seconds;

journal_digest::time_point at(int x) {
  return journal_digest::time_point{seconds{1'000'000 + x}};
}

journaled_batch row(std::uint64_t index, int time,
                    std::vector<metrics> values) {
  journaled_batch x;
  x.index = index;
  x.time = at(time);
  x.values = std::move(values);
  return x;
}

journal_event event(std::string kind, std::uint64_t attempt, int time,
                    metrics fields = {}) {
  return {std::move(kind), attempt, at(time), std::move(fields)};
}

} // namespace

TEST(journal_digest_test, every_number_of_a_report_becomes_a_curve) {
  journal_digest x;
  x.add(row(0, 0, {{{"loss", 1.0}, {"ok", true}}, {{"loss", 3.0}, {"n", 5}}}));
  x.add(row(1, 2, {{{"loss", 0.5}}, {{"loss", 0.5}}}));
  ASSERT_EQ(x.reported.size(), 3u);
  auto& loss = x.reported.at("loss").points();
  ASSERT_EQ(loss.size(), 2u);
  EXPECT_EQ(loss[0].mean, 2);
  EXPECT_EQ(loss[0].min, 1);
  EXPECT_EQ(loss[0].max, 3);
  EXPECT_EQ(loss[1].x, 1);
  EXPECT_EQ(loss[1].seconds, 2);
  EXPECT_EQ(x.reported.at("ok").last().mean, 1);
  EXPECT_EQ(x.reports, 2u);
  EXPECT_EQ(x.world_size, 2u);
}

TEST(journal_digest_test, of_texts_the_last_is_kept) {
  journal_digest x;
  x.add(row(0, 0, {{{"phase", "warm-up"}}, {{"phase", "other rank"}}}));
  EXPECT_EQ(x.texts.at("phase"), "warm-up");
  x.add(row(1, 1, {{{"phase", "training"}}}));
  EXPECT_EQ(x.texts.at("phase"), "training");
  EXPECT_TRUE(x.reported.empty());
}

TEST(journal_digest_test, what_the_loop_logs_has_curves_over_its_own_steps) {
  journal_digest x;
  x.add(
    event("tracker_log", 0, 0,
          {{"step", 500}, {"v/loss", 0.25}, {"v/name", "a"}, {"other", 1}}));
  ASSERT_EQ(x.logged.size(), 1u);
  EXPECT_EQ(x.logged.at("loss").last().x, 500);
  EXPECT_EQ(x.logged.at("loss").last().mean, 0.25);
  EXPECT_EQ(x.texts.at("name"), "a");
  EXPECT_EQ(x.event_count, 0u);
  x.add(event("tracker_params", 0, 1, {{"v/lr", 0.5}}));
  EXPECT_EQ(x.params.at("lr"), "0.5");
  x.add(event("tracker_text", 0, 1, {{"name", "note"}, {"text", "hello"}}));
  EXPECT_EQ(x.texts.at("note"), "hello");
}

TEST(journal_digest_test, a_log_without_step_or_of_an_odd_type_does_no_harm) {
  journal_digest x;
  x.add(event("tracker_log", 0, 0, {{"v/loss", 0.25}, {"step", "seven"}}));
  x.add(event("tracker_log", 0, 0));
  EXPECT_EQ(x.logged.at("loss").points().size(), 1u);
}

TEST(journal_digest_test, attempts_are_known_with_what_ended_them) {
  journal_digest x;
  x.add(event("attempt_begun", 0, 0, {{"first_report", 0}}));
  x.add(row(0, 1, {{{"loss", 1.0}}}));
  x.add(event("ranks_failed", 0, 2, {{"reason", "Rank 1: killed"}}));
  x.add(event("attempt_begun", 1, 3,
              {{"first_report", 1}, {"resume", "checkpoint_0"}}));
  auto after = row(1, 4, {{{"loss", 1.0}}});
  after.attempt = 1;
  x.add(after);
  ASSERT_EQ(x.attempts.size(), 2u);
  EXPECT_EQ(x.attempts[0].failure, "Rank 1: killed");
  EXPECT_EQ(x.attempts[0].reports, 1u);
  EXPECT_EQ(x.attempts[1].resume, "checkpoint_0");
  EXPECT_EQ(x.attempts[1].first_report, 1u);
  EXPECT_EQ(x.attempts[1].time, at(3));
  auto& points = x.reported.at("loss").points();
  EXPECT_NE(points[0].segment, points[1].segment);
}

TEST(journal_digest_test, an_attempt_that_only_its_end_names_has_that_alone) {
  journal_digest x;
  x.add(event("attempt_begun", 0, 0, {{"first_report", 0}}));
  x.add(row(0, 1, {{{"loss", 1.0}}}));
  x.add(event("ranks_failed", 0, 2, {{"reason", "Rank 1: killed"}}));
  x.add(event("run_ended", 0, 3, {{"status", "errored"}}));
  x.add(event("driver_lost", 1, 4, {{"reason", "it was killed"}}));
  ASSERT_EQ(x.attempts.size(), 2u);
  EXPECT_EQ(x.attempts[0].failure, "Rank 1: killed");
  EXPECT_EQ(x.attempts[1].number, 1u);
  EXPECT_EQ(x.attempts[1].first_report, 1u);
  EXPECT_EQ(x.attempts[1].failure, "it was killed");
  EXPECT_FALSE(x.end);
}

TEST(journal_digest_test,
     an_attempt_whose_begin_is_lost_begins_with_its_report) {
  journal_digest x;
  auto first = row(7, 1, {{{"loss", 1.0}}});
  first.attempt = 3;
  x.add(first);
  ASSERT_EQ(x.attempts.size(), 1u);
  EXPECT_EQ(x.attempts[0].number, 3u);
  EXPECT_EQ(x.attempts[0].first_report, 7u);
}

TEST(journal_digest_test, the_end_of_a_run_counts_until_it_is_resumed) {
  journal_digest x;
  x.add(event("run_ended", 0, 1, {{"status", "errored"}, {"error", "why"}}));
  ASSERT_TRUE(x.end);
  EXPECT_EQ(x.end->status, "errored");
  EXPECT_EQ(x.end->error, "why");
  x.add(event("attempt_begun", 1, 2));
  EXPECT_FALSE(x.end);
}

TEST(journal_digest_test, times_of_ranks_are_summed_up) {
  journal_digest x;
  for (int i = 0; i < 3; ++i) {
    auto one = row(i, i, {{}, {}});
    one.step_s = {1.0 * i, 2.0};
    one.wait_s = 0.5;
    x.add(one);
  }
  ASSERT_EQ(x.ranks.size(), 2u);
  EXPECT_EQ(x.ranks[0].sum, 3);
  EXPECT_EQ(x.ranks[0].max, 2);
  EXPECT_EQ(x.ranks[1].last, 2);
  EXPECT_EQ(x.ranks[1].reports, 3u);
  EXPECT_EQ(x.of_ranks[1].points().size(), 3u);
  EXPECT_EQ(x.waits.last().mean, 0.5);
  EXPECT_EQ(x.intervals.points().size(), 2u);
}

TEST(journal_digest_test, a_restart_does_not_count_as_time_between_reports) {
  journal_digest x;
  x.add(row(0, 0, {{}}));
  x.add(event("attempt_begun", 1, 50));
  auto after = row(1, 100, {{}});
  after.attempt = 1;
  x.add(after);
  EXPECT_TRUE(x.intervals.points().empty());
}

TEST(journal_digest_test,
     a_known_text_or_param_changes_however_many_there_are) {
  journal_digest x;
  for (std::size_t i = 0; i < journal_digest::max_notes + 2; ++i) {
    auto name = "n" + std::to_string(1000 + i);
    x.add(event("tracker_params", 0, 0, {{"v/" + name, 0}}));
    x.add(event("tracker_text", 0, 0, {{"name", name}, {"text", "first"}}));
  }
  EXPECT_EQ(x.params.size(), journal_digest::max_notes);
  EXPECT_EQ(x.texts.size(), journal_digest::max_notes);
  EXPECT_EQ(x.unkept, (std::set<std::string>{"n1200", "n1201"}));
  x.add(event("tracker_params", 0, 1, {{"v/n1000", 1}}));
  x.add(event("tracker_text", 0, 1, {{"name", "n1000"}, {"text", "last"}}));
  EXPECT_EQ(x.params.at("n1000"), "1");
  EXPECT_EQ(x.texts.at("n1000"), "last");
}

TEST(journal_digest_test, many_names_events_and_complaints_stay_bounded) {
  journal_digest x;
  metrics many;
  for (int i = 0; i < 700; ++i)
    many["m" + std::to_string(1000 + i)] = i;
  x.add(row(0, 0, {many}));
  EXPECT_EQ(x.reported.size(), journal_digest::max_curves);
  EXPECT_EQ(x.left_out.size(), 200u);
  EXPECT_EQ(*x.left_out.begin(), "m1500");
  for (int i = 0; i < 1000; ++i) {
    x.add(event("something_new", 0, i, {{"i", i}}));
    x.add_damage("line " + std::to_string(i));
  }
  EXPECT_EQ(x.events.size(), journal_digest::max_notes);
  EXPECT_EQ(x.events.back().fields.at("i"), metric_value{999});
  EXPECT_EQ(x.event_count, 1000u);
  EXPECT_EQ(x.damage_count, 1000u);
  EXPECT_EQ(x.damages.front(), "line 0");
  EXPECT_LT(x.damages.size(), 10u);
}

} // namespace troupe::internal
