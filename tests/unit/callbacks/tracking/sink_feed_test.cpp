#include "troupe/callbacks/tracking/sink_feed.hpp"

#include <gmock/gmock.h>

#include <numeric>

#include "tests/support/temporary_folder.hpp"
#include "tests/unit/callbacks/tracking/recorded_sink.hpp"
#include "troupe/callbacks/tracking/tracked_run.hpp"
#include "troupe/runtime/store/journal_line.hpp"
#include "troupe/runtime/store/run_store.hpp"

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::test;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

std::vector<std::uint64_t> up_to(std::uint64_t end) {
  std::vector<std::uint64_t> result(end);
  std::iota(result.begin(), result.end(), 0);
  return result;
}

sink_result down() {
  return sink_fails(sink_failure::kind::transient,
                    {ec::storage, "the tracker is down"});
}

/// As after HTTP 500.
sink_result broken() {
  sink_failure result{sink_failure::kind::transient, {ec::storage, "500"}};
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

class sink_feed_test : public testing::Test {
protected:
  sink_feed_test() {
    run_config config;
    config.name = "r";
    config.storage_path = storage.path();
    store = run_store::open(config, R"({"config":{"opt":{"lr":0.5}}})").value();
    attempt = store->begin_attempt().value().attempt;
  }

  void report(std::uint64_t index) {
    report_batch batch;
    batch.index = index;
    batch.values = {{{"loss", 1.0 / static_cast<double>(index + 1)}}};
    batch.parts.resize(1);
    ASSERT_TRUE(store->append(attempt, batch));
  }

  void report_until(std::uint64_t end) {
    for (auto i = reported; i < end; ++i)
      report(i);
    reported = end;
  }

  sink_feed new_feed() {
    return {target, describe_tracked_run(store->description(), store->path()),
            tracker_options{.retry = {std::chrono::milliseconds{100},
                                      std::chrono::milliseconds{1000}}},
            [this](std::string text) { notes.push_back(std::move(text)); }};
  }

  /// Pumps, on a clock of its own, until the feed waits for the journal.
  void drain(sink_feed& feed, int most = 10000) {
    for (int i = 0; i < most; ++i) {
      auto next = feed.pump(now);
      if (!next)
        return;
      now = *next;
    }
    FAIL() << "the feed does not come to an end";
  }

  temporary_folder storage;
  std::unique_ptr<run_store> store;
  std::uint64_t attempt = 0;
  std::uint64_t reported = 0;
  std::shared_ptr<recorded_sink> target = std::make_shared<recorded_sink>();
  std::vector<std::string> notes;
  sink_feed::clock::time_point now{};
};

TEST_F(sink_feed_test, gives_everything_once_and_in_order) {
  target->batch = 7;
  report_until(20);
  auto feed = new_feed();
  drain(feed);
  report_until(30);
  drain(feed);
  EXPECT_EQ(target->indices(), up_to(30));
  EXPECT_EQ(feed.unsent(), 0u);
  ASSERT_EQ(target->runs.size(), 1u);
  EXPECT_EQ(target->runs[0].config.number("opt/lr"), 0.5);
  EXPECT_EQ(target->runs[0].id.size(), 32u);
  EXPECT_TRUE(notes.empty());
}

// The run continues while a sink takes what it has reported.
TEST_F(sink_feed_test, has_caught_up_although_more_came_while_it_sent) {
  report_until(3);
  target->answer = [&](auto) {
    report_until(reported + 1);
    return sink_result{};
  };
  target->batch = 2;
  auto feed = new_feed();
  EXPECT_FALSE(feed.has_caught_up());
  ASSERT_TRUE(feed.pump(now)); // the attempt and the first report
  EXPECT_FALSE(feed.has_caught_up());
  ASSERT_TRUE(feed.pump(now));
  EXPECT_FALSE(feed.has_caught_up()); // It did not read the end.
  target->batch = 100;
  auto again = new_feed();
  ASSERT_TRUE(again.pump(now));
  EXPECT_TRUE(again.has_caught_up());
  EXPECT_EQ(*again.unsent(), 2u); // of `start` and `log`
}

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

TEST_F(sink_feed_test, resumes_where_the_previous_driver_stopped) {
  report_until(10);
  {
    auto feed = new_feed();
    drain(feed);
  }
  report_until(15);
  auto feed = new_feed();
  drain(feed);
  EXPECT_EQ(target->indices(), up_to(15));
  ASSERT_EQ(target->states.size(), 2u);
  EXPECT_EQ(target->states[0], "");
  EXPECT_EQ(target->states[1], "11 rows"); // The attempt is a record, too.
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

TEST_F(sink_feed_test, skips_many_lines_that_are_not_records) {
  report_until(1);
  ASSERT_TRUE(store->append_event("warning", attempt,
                                  {{"text", std::string(5 << 20, 'x')}}));
  auto feed = new_feed();
  drain(feed);
  report_until(4);
  drain(feed);
  EXPECT_EQ(target->indices(), up_to(4));
}

TEST_F(sink_feed_test, starts_over_if_its_position_is_damaged) {
  report_until(10);
  {
    auto feed = new_feed();
    drain(feed);
  }
  auto place = store->path() / "sinks" / "recorded.offset";
  auto text = bytes_of(place);
  ++text[text.find("offset") + 9]; // A digit, and the sum is wrong.
  write_bytes(place, text);
  auto feed = new_feed();
  EXPECT_EQ(feed.unsent(), target->rows.size());
  target->rows.clear();
  drain(feed);
  EXPECT_EQ(target->indices(), up_to(10));
  EXPECT_EQ(target->states.back(), "");
  EXPECT_THAT(notes, ElementsAre(HasSubstr("recorded.offset.damaged")));
  EXPECT_EQ(bytes_of(place.string() + ".damaged"), text);
  EXPECT_EQ(new_feed().unsent(), 0u);
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

TEST_F(sink_feed_test, halves_a_batch_on_which_the_tracker_keeps_failing) {
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

TEST_F(sink_feed_test, finds_its_position_in_a_journal_that_lost_its_tail) {
  report_until(5);
  auto journal = store->path() / "journal.jsonl";
  auto whole = bytes_of(journal);
  report_until(8);
  {
    auto feed = new_feed();
    drain(feed);
  }
  // What a power cut takes with it; the run resumes from the report it knows.
  store.reset();
  write_bytes(journal, whole);
  run_config config;
  config.name = "r";
  config.storage_path = storage.path();
  store = run_store::open(config).value();
  attempt = store->begin_attempt().value().attempt;
  for (auto index : {8, 9, 10, 11, 12})
    report(static_cast<std::uint64_t>(index));
  auto feed = new_feed();
  drain(feed);
  EXPECT_EQ(target->indices(), up_to(13));
}

TEST_F(sink_feed_test, finds_new_lines_although_the_clock_was_set_back) {
  report_until(5);
  auto journal = store->path() / "journal.jsonl";
  auto whole = bytes_of(journal);
  report_until(8);
  {
    auto feed = new_feed();
    drain(feed);
  }
  // A power cut takes the tail and the time; the next attempt writes on.
  auto facts = describe_tracked_run(store->description(), store->path());
  store.reset();
  for (std::uint64_t i = 8; i < 11; ++i) {
    report_batch batch{.index = i, .values = {{{"loss", 0.5}}}};
    std::string line;
    append_batch_line(line, attempt + 1, static_cast<std::int64_t>(i), batch,
                      {}, 0);
    whole += line;
  }
  write_bytes(journal, whole);
  sink_feed feed{target, facts, tracker_options{}, [](const std::string&) {}};
  drain(feed);
  EXPECT_EQ(target->indices(), up_to(11));
}
