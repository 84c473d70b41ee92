// The limit on calls per minute, and what is sent within it.

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/unit/callbacks/comet/comet_rest_fixture.hpp"
#include "troupe/callbacks/comet/comet_rest.hpp"

namespace troupe::internal::test {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(token_bucket_test, allows_a_burst_and_then_the_rate) {
  token_bucket x{240};
  auto now = token_bucket::clock::time_point{} + 1h;
  for (int i = 0; i < 60; ++i)
    EXPECT_TRUE(x.take(now)) << i;
  EXPECT_FALSE(x.take(now));
  EXPECT_FALSE(x.take(now + 200ms));
  EXPECT_TRUE(x.take(now + 250ms));
  EXPECT_FALSE(x.take(now + 250ms));
  EXPECT_NEAR(x.available(now + 1h), 60, 1e-9);
}

TEST(token_bucket_test, says_when_to_retry) {
  token_bucket x{240};
  auto now = token_bucket::clock::time_point{} + 1h;
  while (x.take(now)) {
  }
  EXPECT_EQ(x.until(1), 1s);
  EXPECT_EQ(x.until(20), 5s);
  EXPECT_EQ(x.until(1000), 15s) << "not more than fit at once";
}

TEST_F(comet_rest_test, thins_out_points_rather_than_exceed_the_limit) {
  comet_sink x{options};
  ASSERT_TRUE(x.start(run, ""));
  // More points of few metrics than the limit allows at once.
  std::vector<tracker_record> records;
  for (std::uint64_t i = 0; i < 50; ++i) {
    metrics values;
    for (int key = 0; key < 60; ++key)
      values["m" + std::to_string(key)] = double(i);
    records.push_back(record.report(i, {values}));
    records.back().time = record_time(1);
  }
  ASSERT_TRUE(x.log(records));
  auto sent = bodies("metric");
  ASSERT_EQ(sent.size(), 60u) << "the latest of each";
  for (auto& body : sent)
    EXPECT_EQ(body.at("step"), 49);
  EXPECT_THAT(x.take_notes(), ElementsAre(HasSubstr("more points")));
}

TEST_F(comet_rest_test, sends_all_points_that_waited_of_a_slow_run) {
  comet_sink x{options};
  ASSERT_TRUE(x.start(run, ""));
  // More than the limit allows at once, over more than a minute.
  std::vector<tracker_record> records;
  for (std::uint64_t i = 0; i < 100; ++i) {
    metrics values;
    for (int key = 0; key < 30; ++key)
      values["m" + std::to_string(key)] = double(i);
    records.push_back(record.report(i, {values}));
    records.back().time = record_time(2 * i);
  }
  (void) x.log(records); // Perhaps a part, until there is room again.
  EXPECT_GE(bodies("metric").size(), 2700u);
  EXPECT_THAT(x.take_notes(), IsEmpty());
}

// Without a burst that is left, a batch has the time before it, too.
TEST_F(comet_rest_test, sends_all_points_of_a_run_slightly_below_the_limit) {
  comet_sink x{options};
  ASSERT_TRUE(x.start(run, ""));
  auto report = [&](std::uint64_t index, int points) {
    metrics values;
    for (int key = 0; key < points; ++key)
      values["m" + std::to_string(key)] = double(index);
    auto result = record.report(index, {values});
    result.time = record_time(20 * index); // Every 10 s.
    return result;
  };
  auto burst = report(0, 2700);
  ASSERT_TRUE(x.log({&burst, 1}));
  std::vector<tracker_record> records{report(1, 1700), report(2, 1700)};
  (void) x.log(records); // Perhaps a part, until there is room again.
  EXPECT_THAT(x.take_notes(), IsEmpty());
}

TEST_F(comet_rest_test, thins_out_nothing_of_a_batch_that_is_sent_in_parts) {
  comet_sink x{options};
  ASSERT_TRUE(x.start(run, ""));
  std::vector<tracker_record> records;
  for (std::uint64_t i = 0; i < 3; ++i) {
    metrics values;
    for (int key = 0; key < 1000; ++key)
      values["m" + std::to_string(key)] = double(i);
    records.push_back(record.report(i, {values}));
    records.back().time = record_time(200 * i);
  }
  set_fault(
    [](const loopback_request&) { return loopback_reply{.status = 500}; });
  ASSERT_FALSE(x.log(records));
  set_fault(nullptr);
  ASSERT_TRUE(x.log(std::span{records}.first(1)));
  EXPECT_EQ(bodies("metric").size(), 1001u) << "one of them twice";
  EXPECT_THAT(x.take_notes(), IsEmpty());
}

TEST_F(comet_rest_test, has_room_for_a_burst_and_what_its_rate_allows) {
  comet_rest x{make_comet_settings(options, run).value(), {}, run};
  EXPECT_EQ(x.room(0s), 2700u);
  EXPECT_EQ(x.room(60s), 2700u + 10800u);
  EXPECT_EQ(x.room(-60s), 2700u) << "the clock was set back";
}

} // namespace
} // namespace troupe::internal::test
