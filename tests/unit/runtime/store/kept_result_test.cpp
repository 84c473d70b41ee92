#include "troupe/runtime/store/kept_result.hpp"

#include <atomic>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include "tests/unit/runtime/process/no_memory.hpp"

namespace troupe::internal::test {
namespace {

kept_result kept_example() {
  kept_result x;
  x.head.status = run_status_kind::finished;
  x.head.attempts = 3;
  x.metrics = {{"loss", 0.5}};
  x.best_checkpoints = {
    {checkpoint::from_directory("/c/a"), {{"loss", 1.0}}, 4, 1},
    {checkpoint::from_directory("/c/b"), {{"loss", 0.5}}, 2, 0}};
  return x;
}

} // namespace

TEST(kept_result_test, shares_its_metrics_until_they_are_unpacked) {
  auto x = kept_example();
  auto copy = x;
  EXPECT_EQ(copy.metrics.bytes().data(), x.metrics.bytes().data());
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_EQ(copy.best_checkpoints[i].values.bytes().data(),
              x.best_checkpoints[i].values.bytes().data());
  auto whole = copy.unpacked();
  EXPECT_EQ(whole.status, run_status_kind::finished);
  EXPECT_EQ(whole.attempts, 3u);
  EXPECT_EQ(whole.metrics, (metrics{{"loss", 0.5}}));
  EXPECT_EQ(whole.best_checkpoints,
            (std::vector{x.best_checkpoints[0].unpacked(),
                         x.best_checkpoints[1].unpacked()}));
  EXPECT_EQ(x.unpacked_if_possible().best_checkpoints, whole.best_checkpoints);
}

TEST(kept_result_test, says_how_the_run_ended_even_without_memory) {
  if (!memory_can_be_scarce)
    GTEST_SKIP() << "a sanitizer has an operator new of its own";
  auto x = kept_example();
  x.head.error = make_run_error({ec::storage, "the disk is full"});
  std::optional<result> outcome;
  std::atomic<bool> may_read = false;
  std::atomic<bool> has_read = false;
  std::jthread reader{[&] {
    may_read.wait(false);
    outcome = x.unpacked_if_possible();
    has_read = true;
    has_read.notify_one();
  }};
  {
    no_memory_elsewhere none;
    may_read = true;
    may_read.notify_one();
    has_read.wait(false);
    EXPECT_GT(none.refused(), 0);
  }
  reader.join();
  EXPECT_EQ(outcome->status, run_status_kind::finished);
  EXPECT_EQ(outcome->attempts, 3u);
  ASSERT_TRUE(outcome->error);
  EXPECT_EQ(outcome->error->code, ec::storage);
  EXPECT_TRUE(outcome->best_checkpoints.empty());
}

} // namespace troupe::internal::test
