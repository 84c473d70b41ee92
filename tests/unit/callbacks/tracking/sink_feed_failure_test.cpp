// What a feed does with failures of its sink: what it sends again, sets aside
// and gives up.

#include <algorithm>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <variant>

#include <gmock/gmock.h>

#include "tests/support/few_descriptors.hpp"
#include "tests/unit/callbacks/tracking/sink_feed_fixture.hpp"

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::test;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

/// As after HTTP 500.
sink_result broken() {
  sink_failure result{sink_failure::kind::transient, {ec::protocol, "500"}};
  result.suspect = true;
  return tl::unexpected{result};
}

bool has_report(std::span<const tracker_record> records, std::uint64_t index) {
  return std::ranges::any_of(records, [&](auto& x) {
    auto row = std::get_if<journaled_batch>(&x.content);
    return row && row->index == index;
  });
}

} // namespace

TEST_F(sink_feed_test, a_feed_whose_sink_fails_has_not_caught_up) {
  report_until(3);
  target->answer = [](auto) { return down(); };
  auto feed = new_feed();
  ASSERT_TRUE(feed.pump(now));
  EXPECT_FALSE(feed.has_caught_up());
  target->answer = {};
  ASSERT_TRUE(feed.pump(now));
  EXPECT_TRUE(feed.has_caught_up());
}

TEST_F(sink_feed_test, a_feed_whose_sink_throws_has_not_caught_up) {
  report_until(3);
  target->answer = [](auto) -> sink_result { throw std::runtime_error{"no"}; };
  auto feed = new_feed();
  ASSERT_TRUE(feed.pump(now));
  EXPECT_FALSE(feed.has_caught_up());
}

TEST_F(sink_feed_test, retries_after_a_growing_wait) {
  report_until(5);
  int failures = 6;
  target->answer = [&](auto) {
    return failures-- > 0 ? down() : sink_result{};
  };
  auto feed = new_feed();
  auto first = feed.pump(now);
  ASSERT_TRUE(first);
  EXPECT_GE(*first - now, std::chrono::milliseconds{50});
  drain(feed);
  EXPECT_EQ(target->indices(), up_to(5));
  EXPECT_GT(now.time_since_epoch(), std::chrono::milliseconds{800});
  EXPECT_THAT(notes, ElementsAre(HasSubstr("the tracker is down"),
                                 HasSubstr("takes records again")));
}

TEST_F(sink_feed_test, waits_as_long_as_the_tracker_asks) {
  report_until(1);
  bool asked = false;
  target->answer = [&](auto) -> sink_result {
    if (std::exchange(asked, true))
      return {};
    sink_failure busy{sink_failure::kind::transient, {ec::storage, "429"}};
    busy.retry_after = std::chrono::seconds{90};
    return tl::unexpected{busy};
  };
  auto feed = new_feed();
  auto next = feed.pump(now);
  ASSERT_TRUE(next);
  EXPECT_EQ(*next - now, std::chrono::seconds{90});
}

TEST_F(sink_feed_test, does_not_repeat_what_was_accepted) {
  report_until(10);
  bool failed = false;
  target->answer = [&](std::span<const tracker_record> x) -> sink_result {
    if (x.size() < 5 || std::exchange(failed, true))
      return {};
    return sink_fails(sink_failure::kind::transient, {ec::storage, "cut"}, 4);
  };
  auto feed = new_feed();
  drain(feed);
  EXPECT_EQ(target->indices(), up_to(10));
}

// As one with a limit of calls per minute.
TEST_F(sink_feed_test, a_tracker_that_takes_a_part_of_each_batch_is_not_down) {
  report_until(20);
  target->answer = [](std::span<const tracker_record> x) -> sink_result {
    if (x.size() < 5)
      return {};
    return sink_fails(sink_failure::kind::transient, {ec::timeout, "limit"}, 4);
  };
  auto feed = new_feed();
  drain(feed);
  EXPECT_EQ(target->indices(), up_to(20));
  EXPECT_THAT(notes, testing::IsEmpty());
}

TEST_F(sink_feed_test, sends_fewer_records_to_a_tracker_that_is_too_slow) {
  report_until(20);
  target->answer = [](std::span<const tracker_record> x) -> sink_result {
    if (x.size() < 5)
      return {};
    return sink_fails(sink_failure::kind::transient, {ec::timeout, "120 s"});
  };
  auto feed = new_feed();
  drain(feed);
  EXPECT_EQ(target->indices(), up_to(20));
  EXPECT_EQ(feed.refused(), "");
}

// A failure of `start` may count something else: tags.
TEST_F(sink_feed_test, only_what_log_was_given_can_have_been_accepted) {
  report_until(10);
  ASSERT_TRUE(store->finish(run_status_kind::finished));
  int starts = 0, logs = 0, ends = 0;
  auto fails = [](int& calls, std::size_t accepted) -> sink_result {
    if (calls++ > 0)
      return {};
    return sink_fails(sink_failure::kind::transient, {ec::storage, "cut"},
                      accepted);
  };
  target->batch = 4;
  target->answer = [&](std::span<const tracker_record> x) {
    if (!x.empty())
      return fails(logs, x.size());
    return target->ends.empty() ? fails(starts, 6) : fails(ends, 1);
  };
  auto feed = new_feed();
  drain(feed);
  EXPECT_EQ(target->indices(), up_to(10));
  EXPECT_THAT(target->ends, ElementsAre(run_status_kind::finished,
                                        run_status_kind::finished));
}

TEST_F(sink_feed_test, says_no_secret_that_a_sink_puts_into_its_reason) {
  report_until(3);
  using kind = sink_failure::kind;
  const error reason{ec::storage, "no http://me:planted@host/ here"};
  for (auto what : {kind::transient, kind::rejected, kind::permanent}) {
    target->answer = [&](auto) { return sink_fails(what, reason); };
    auto feed = new_feed();
    for (int i = 0; i < 20; ++i)
      now = feed.pump(now).value_or(now);
    EXPECT_THAT(feed.trouble().message, HasSubstr("no http://***@host/ here"));
  }
  target->answer = [&](auto) -> sink_result {
    throw std::runtime_error{reason.message};
  };
  auto feed = new_feed();
  (void) feed.pump(now);
  EXPECT_THAT(feed.trouble().message, HasSubstr("no http://***@host/ here"));
  EXPECT_FALSE(notes.empty());
  EXPECT_THAT(notes, testing::Each(testing::Not(HasSubstr("planted"))));
}

TEST_F(sink_feed_test, sets_a_refused_record_aside_and_sends_the_others) {
  report_until(100);
  target->answer = [&](std::span<const tracker_record> x) -> sink_result {
    for (auto& record : x)
      if (auto row = std::get_if<journaled_batch>(&record.content))
        if (row->index == 42)
          return sink_fails(sink_failure::kind::rejected,
                            {ec::invalid_argument, "bad name"});
    return {};
  };
  auto feed = new_feed();
  drain(feed);
  auto all = up_to(100);
  all.erase(all.begin() + 42);
  EXPECT_EQ(target->indices(), all);
  EXPECT_THAT(bytes_of(store->path() / "sinks" / "recorded.rejected.jsonl"),
              HasSubstr("{\"batch\":42,"));
  EXPECT_THAT(notes, testing::Contains(HasSubstr("bad name")));
  EXPECT_THAT(new_feed().refused(), HasSubstr("1 record was refused"));
}

TEST_F(sink_feed_test, notes_few_of_many_refusals) {
  report_until(120);
  target->answer = [](std::span<const tracker_record> x) -> sink_result {
    for (auto& record : x)
      if (std::holds_alternative<journaled_batch>(record.content))
        return sink_fails(sink_failure::kind::rejected,
                          {ec::invalid_argument, "no room"});
    return {};
  };
  auto feed = new_feed();
  drain(feed);
  EXPECT_THAT(notes, ElementsAre(HasSubstr("refused a record, which is kept"),
                                 HasSubstr("refused 10 records"),
                                 HasSubstr("refused 100 records")));
  EXPECT_THAT(feed.refused(), HasSubstr("120 records were refused"));
}

TEST_F(sink_feed_test, finds_the_record_on_which_the_tracker_keeps_failing) {
  report_until(20);
  target->answer = [&](auto x) {
    return has_report(x, 3) ? broken() : sink_result{};
  };
  auto feed = new_feed();
  drain(feed);
  auto all = up_to(20);
  all.erase(all.begin() + 3);
  EXPECT_EQ(target->indices(), all);
}

// With the waits of a real tracker, which grow to a minute.
TEST_F(sink_feed_test, finds_one_record_of_a_thousand_within_minutes) {
  report_until(1000);
  target->answer = [&](auto x) {
    return has_report(x, 1) ? broken() : sink_result{};
  };
  auto feed = new_feed(tracker_options{}.retry);
  drain(feed);
  EXPECT_EQ(target->indices().size(), 999u);
  EXPECT_LT(now.time_since_epoch(), std::chrono::minutes{4});
}

// A server that restarts answers 500 for a while, whatever it gets.
TEST_F(sink_feed_test, refuses_no_record_for_a_failure_of_less_than_2_minutes) {
  auto time = [&] { return now.time_since_epoch(); };
  auto end = std::chrono::seconds{119};
  target->answer = [&](auto x) {
    return has_report(x, 0) && time() < end ? broken() : sink_result{};
  };
  report_until(1);
  auto feed = new_feed();
  drain(feed);
  EXPECT_EQ(target->indices(), up_to(1));
  EXPECT_EQ(feed.refused(), "");
  target->answer = [&](auto x) {
    return has_report(x, 2) || has_report(x, 3) ? broken() : sink_result{};
  };
  report_until(5);
  drain(feed);
  EXPECT_THAT(target->indices(), ElementsAre(0, 1, 4));
  EXPECT_THAT(feed.refused(), HasSubstr("2 records were refused"));
  EXPECT_GE(time(), end + std::chrono::seconds{240});
}

// A server with a full disk may answer 500 to everything for a night.
TEST_F(sink_feed_test, a_long_failure_of_the_tracker_costs_few_records) {
  report_until(100);
  target->answer = [&](auto x) {
    auto is_broken = now.time_since_epoch() < std::chrono::hours{8};
    return !x.empty() && is_broken ? broken() : sink_result{};
  };
  auto feed = new_feed(tracker_options{}.retry);
  drain(feed);
  EXPECT_GE(target->indices().size(), 100u - 8);
}

TEST_F(sink_feed_test, files_that_cannot_be_read_cost_two_minutes_each) {
  report_until(4);
  target->answer = [&](auto x) -> sink_result {
    if (!has_report(x, 1) && !has_report(x, 2) && !has_report(x, 3))
      return {};
    sink_failure result{sink_failure::kind::transient, {ec::storage, "EACCES"}};
    result.suspect = true;
    return tl::unexpected{result};
  };
  auto feed = new_feed(tracker_options{}.retry);
  drain(feed);
  EXPECT_THAT(target->indices(), ElementsAre(0));
  EXPECT_LT(now.time_since_epoch(), std::chrono::minutes{10});
}

TEST_F(sink_feed_test, sends_the_records_before_one_that_cannot_be_looked_up) {
  report_until(1);
  auto feed = new_feed();
  drain(feed);
  report_until(2);
  ASSERT_TRUE(store->append_event("tracker_artifact", attempt,
                                  {{"name", "a"}, {"file", "artifacts/a"}}));
  std::optional<few_descriptors> none{std::in_place};
  target->answer = [&](auto) {
    none.reset();
    return sink_result{};
  };
  auto next = feed.pump(now);
  none.reset();
  EXPECT_TRUE(next);
  EXPECT_EQ(target->indices(), up_to(2));
  drain(feed);
  EXPECT_TRUE(
    std::holds_alternative<logged_artifact>(target->rows.back().content));
}

TEST_F(sink_feed_test, delivers_nothing_after_a_permanent_failure) {
  report_until(3);
  target->answer = [&](auto) {
    return sink_fails(sink_failure::kind::permanent,
                      {ec::invalid_config, "set SOME_KEY"});
  };
  auto feed = new_feed();
  EXPECT_FALSE(feed.pump(now));
  EXPECT_FALSE(feed.pump(now));
  EXPECT_TRUE(target->rows.empty());
  EXPECT_EQ(feed.unsent(), 4u);
  EXPECT_THAT(notes, ElementsAre(HasSubstr("set SOME_KEY")));
  target->answer = {};
  auto next_life = new_feed();
  drain(next_life);
  EXPECT_EQ(target->indices(), up_to(3));
}

// Comet shows a point that is sent again as another one.
TEST_F(sink_feed_test, sends_no_record_again_because_finish_fails) {
  report_until(3);
  ASSERT_TRUE(store->finish(run_status_kind::finished));
  target->end_result = down();
  auto feed = new_feed();
  for (auto i = 0; i < 3; ++i)
    now = feed.pump(now).value();
  EXPECT_TRUE(feed.trouble());
  EXPECT_EQ(feed.unsent(), 1u);
  target->end_result = {};
  auto next = new_feed();
  EXPECT_EQ(next.unsent(), 1u);
  drain(next);
  EXPECT_EQ(target->indices(), up_to(3));
  EXPECT_THAT(target->ends, ElementsAre(run_status_kind::finished));
}

TEST_F(sink_feed_test, what_a_failed_finish_was_to_write_is_unsent) {
  target->writes_all_at_end = true;
  report_until(2);
  ASSERT_TRUE(store->finish(run_status_kind::finished));
  target->end_result = down();
  auto feed = new_feed();
  for (auto i = 0; i < 3; ++i)
    now = feed.pump(now).value();
  EXPECT_EQ(feed.unsent(), 4u);
  EXPECT_EQ(new_feed().unsent(), 4u);
  target->end_result = {};
  drain(feed);
  EXPECT_EQ(new_feed().unsent(), 0u);
}

// A server refuses a setting of the run each time: no retry helps.
TEST_F(sink_feed_test, a_refusal_of_the_run_itself_is_permanent) {
  report_until(2);
  target->start_result = sink_fails(sink_failure::kind::rejected,
                                    {ec::storage, "the tag 'x' is too long"});
  auto feed = new_feed();
  EXPECT_FALSE(feed.pump(now));
  EXPECT_THAT(
    notes, ElementsAre(testing::AllOf(HasSubstr("gets no more records"),
                                      HasSubstr("the tag 'x' is too long"))));
  EXPECT_EQ(feed.unsent(), 3u);
  target->start_result = {};
  auto next = new_feed(); // The next driver tries again.
  drain(next);
  EXPECT_EQ(target->indices(), up_to(2));
}

// The same, and the last records may have no successor that saves again.
TEST_F(sink_feed_test, saves_its_position_again_although_nothing_more_comes) {
  report_until(3);
  auto place = store->path() / "sinks" / "recorded.offset";
  target->answer = [&](std::span<const tracker_record> records) {
    if (!records.empty()) {
      fs::remove(place);
      fs::create_directory(place);
    }
    return sink_result{};
  };
  auto feed = new_feed();
  for (auto i = 0; i < 2; ++i)
    now = feed.pump(now).value();
  EXPECT_TRUE(feed.trouble());
  EXPECT_FALSE(feed.has_caught_up()) << "it is to be called again";
  EXPECT_EQ(target->indices(), up_to(3));
  fs::remove(place);
  drain(feed);
  EXPECT_FALSE(feed.trouble());
  EXPECT_EQ(new_feed().unsent(), 0u);
  EXPECT_EQ(target->indices(), up_to(3));
}

// A sink that has made its run would make another one.
TEST_F(sink_feed_test, sends_nothing_before_it_knows_the_sink_again) {
  report_until(3);
  auto place = store->path() / "sinks" / "recorded.offset";
  target->answer = [&](std::span<const tracker_record> records) {
    if (records.empty())
      fs::create_directory(place);
    return sink_result{};
  };
  auto feed = new_feed();
  for (auto i = 0; i < 3; ++i)
    now = feed.pump(now).value();
  EXPECT_EQ(target->runs.size(), 1u);
  EXPECT_TRUE(target->rows.empty());
  fs::remove(place);
  drain(feed);
  EXPECT_EQ(target->runs.size(), 1u);
  EXPECT_EQ(target->indices(), up_to(3));
  EXPECT_THAT(notes, ElementsAre(HasSubstr("recorded.offset"),
                                 HasSubstr("takes records again")));
}
