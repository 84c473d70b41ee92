#include "troupe/runtime/run/batch_queue.hpp"

#include <memory>

#include <gtest/gtest.h>

namespace troupe::internal {
namespace {

using queue = batch_queue<std::unique_ptr<int>>;

queue queue_of(int count) {
  queue result;
  for (int i = 0; i < count; ++i)
    result.add(std::make_unique<int>(i));
  return result;
}

TEST(batch_queue_test, stores_one_batch_at_a_time_in_their_order) {
  auto batches = queue_of(2);
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(batches.is_storing());
    auto* next = batches.store_next();
    ASSERT_NE(next, nullptr);
    EXPECT_EQ(**next, i);
    EXPECT_TRUE(batches.is_storing());
    EXPECT_EQ(batches.store_next(), nullptr);
    EXPECT_EQ(*batches.pop(), i);
  }
  EXPECT_EQ(batches.store_next(), nullptr);
}

TEST(batch_queue_test, leaves_the_batch_that_is_being_stored) {
  auto batches = queue_of(3);
  ASSERT_NE(batches.store_next(), nullptr);
  auto waiting = batches.take_waiting();
  ASSERT_EQ(waiting.size(), 2u);
  EXPECT_EQ(*waiting[0], 1);
  EXPECT_EQ(*waiting[1], 2);
  EXPECT_TRUE(batches.take_waiting().empty());
  EXPECT_EQ(*batches.pop(), 0);
  EXPECT_EQ(batches.store_next(), nullptr);
}

TEST(batch_queue_test, gives_back_all_while_none_is_being_stored) {
  auto batches = queue_of(2);
  EXPECT_EQ(batches.take_waiting().size(), 2u);
  EXPECT_EQ(batches.store_next(), nullptr);
}

} // namespace
} // namespace troupe::internal
