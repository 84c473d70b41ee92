// Under which names the run of a tracker begins, and how it ends.

#include <span>
#include <utility>
#include <variant>

#include <gmock/gmock.h>

#include "tests/unit/callbacks/tracking/sink_feed_fixture.hpp"

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::test;
using testing::ElementsAre;

TEST_F(sink_feed_test, passes_on_what_a_sink_says_of_each_call) {
  report_until(1);
  auto feed = new_feed();
  target->said = {"begun"};
  drain(feed);
  target->answer = [this](std::span<const tracker_record> records) {
    target->said.push_back(records.empty() ? "ended" : "taken");
    return sink_result{};
  };
  report_until(2);
  drain(feed);
  ASSERT_TRUE(store->finish(run_status_kind::finished));
  drain(feed);
  EXPECT_THAT(notes,
              ElementsAre("tracker recorded: begun", "tracker recorded: taken",
                          "tracker recorded: ended"));
}

TEST_F(sink_feed_test, finishes_the_tracker_and_opens_it_again_on_resume) {
  report_until(2);
  ASSERT_TRUE(store->finish(run_status_kind::aborted));
  auto feed = new_feed();
  drain(feed);
  report_until(4);
  ASSERT_TRUE(store->finish(run_status_kind::finished));
  drain(feed);
  EXPECT_EQ(target->indices(), up_to(4));
  EXPECT_THAT(target->ends,
              ElementsAre(run_status_kind::aborted, run_status_kind::finished));
  EXPECT_EQ(target->runs.size(), 2u);
}

TEST_F(sink_feed_test, omits_records_that_the_end_writes_again) {
  target->writes_all_at_end = true;
  report_until(2);
  auto feed = new_feed();
  drain(feed);
  report_until(4);
  ASSERT_TRUE(store->finish(run_status_kind::finished));
  drain(feed);
  EXPECT_EQ(target->indices(), up_to(2));
  EXPECT_THAT(target->ends, ElementsAre(run_status_kind::finished));
  EXPECT_EQ(feed.unsent(), 0u);
}

TEST_F(sink_feed_test, takes_names_and_the_outcome_from_the_loop) {
  ASSERT_TRUE(store->append_event(
    "tracker_start", attempt,
    {{"project", "p"}, {"experiment", "e"}, {"display_name", "n"}}));
  ASSERT_TRUE(store->append_event(
    "tracker_log", attempt, {{"step", 7}, {"v/step", 1}, {"v/a/b", 2.5}}));
  ASSERT_TRUE(
    store->append_event("tracker_finish", attempt, {{"status", "errored"}}));
  ASSERT_TRUE(store->finish(run_status_kind::finished));
  auto feed = new_feed();
  drain(feed);
  ASSERT_EQ(target->runs.size(), 1u);
  EXPECT_EQ(target->runs[0].project, "p");
  EXPECT_EQ(target->runs[0].experiment, "e");
  EXPECT_EQ(target->runs[0].display_name, "n");
  EXPECT_THAT(target->ends, ElementsAre(run_status_kind::errored));
  auto& logged = std::get<logged_metrics>(target->rows.back().content);
  EXPECT_EQ(logged.step, 7);
  EXPECT_EQ(logged.values, (metrics{{"step", 1}, {"a/b", 2.5}}));
}

TEST_F(sink_feed_test, starts_and_resumes_under_the_names_of_the_first_loop) {
  auto begin = [&](const char* project) {
    ASSERT_TRUE(store->append_event(
      "tracker_start", attempt,
      {{"project", project}, {"experiment", "e"}, {"display_name", "n"}}));
  };
  auto feed = new_feed();
  drain(feed); // The attempt has begun, its loop has not.
  EXPECT_TRUE(target->runs.empty());
  EXPECT_FALSE(feed.has_started());
  begin("p");
  report_until(2);
  drain(feed);
  report_until(3);
  begin("another");
  drain(feed);
  auto next = new_feed();
  drain(next); // There is nothing new.
  EXPECT_FALSE(next.has_started());
  report_until(4);
  drain(next);
  ASSERT_EQ(target->runs.size(), 2u);
  for (auto& run : target->runs)
    EXPECT_EQ(run.project + run.experiment + run.display_name, "pen");
  EXPECT_EQ(target->indices(), up_to(4));
}

TEST_F(sink_feed_test, that_begins_late_takes_the_names_of_the_first_loop) {
  auto begin = [&](const char* project) {
    ASSERT_TRUE(
      store->append_event("tracker_start", attempt, {{"project", project}}));
  };
  begin("first");
  report_until(2);
  attempt = store->begin_attempt().value().attempt;
  begin("second");
  report_until(4);
  int failures = 1;
  target->answer = [&](auto) {
    return failures-- > 0 ? down() : sink_result{};
  };
  auto feed = new_feed();
  ASSERT_TRUE(feed.pump(now)); // Down, with all of that read.
  begin("third");
  report_until(5);
  drain(feed);
  ASSERT_EQ(target->runs.size(), 2u);
  for (auto& run : target->runs)
    EXPECT_EQ(run.project, "first");
  EXPECT_EQ(target->indices(), up_to(5));
}

TEST_F(sink_feed_test, remembers_no_more_of_the_end_than_of_the_records) {
  report_until(1);
  ASSERT_TRUE(
    store->append_event("tracker_finish", attempt, {{"status", "errored"}}));
  report_until(3);
  ASSERT_TRUE(store->finish(run_status_kind::finished));
  ASSERT_TRUE(
    store->append_event("attempt_begun", attempt + 1, {{"first_report", 3}}));
  target->answer = [](auto records) -> sink_result {
    if (records.empty())
      return {};
    sink_failure busy{sink_failure::kind::transient, {ec::storage, "down"}};
    busy.accepted = 3;
    return tl::unexpected{busy};
  };
  auto first = new_feed();
  ASSERT_TRUE(first.pump(now)); // The attempt and two reports.
  target->answer = {};
  auto next = new_feed();
  drain(next);
  EXPECT_EQ(target->indices(), up_to(3));
  EXPECT_THAT(target->ends, ElementsAre(run_status_kind::errored));
}

TEST_F(sink_feed_test, a_run_that_has_only_begun_has_nothing_to_send) {
  auto feed = new_feed();
  drain(feed);
  attempt = store->begin_attempt().value().attempt; // The driver was killed.
  EXPECT_EQ(feed.unsent(), 0u);
  EXPECT_EQ(new_feed().unsent(), 0u);
  EXPECT_TRUE(target->runs.empty());
  report_until(1);
  EXPECT_EQ(feed.unsent(), 3u);
  EXPECT_EQ(new_feed().unsent(), 3u);
}

TEST_F(sink_feed_test, starts_without_names_at_the_first_report) {
  auto feed = new_feed();
  drain(feed);
  report_until(1);
  drain(feed);
  ASSERT_TRUE(
    store->append_event("tracker_start", attempt, {{"project", "p"}}));
  report_until(2);
  auto next = new_feed();
  drain(next);
  ASSERT_EQ(target->runs.size(), 2u);
  for (auto& run : target->runs)
    EXPECT_EQ(run.project, "");
}
