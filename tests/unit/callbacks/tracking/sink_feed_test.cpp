// What of the journal a sink gets, and where it resumes after a restart.

#include <gmock/gmock.h>

#include "tests/unit/callbacks/tracking/sink_feed_fixture.hpp"
#include "troupe/runtime/store/journal_line.hpp"

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::test;
using testing::ElementsAre;
using testing::HasSubstr;

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
