#include "troupe/trainers/torch/data/global_batch.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "troupe/trainers/train_error.hpp"

namespace troupe::internal::test {

using ::testing::HasSubstr;

namespace {

std::string refusal(int ranks, std::int64_t global, std::int64_t most) {
  try {
    split_global_batch(ranks, global, most);
  } catch (const train_error& x) {
    return x.what();
  }
  return "not refused";
}

} // namespace

TEST(global_batch_test, ranks_take_as_few_batches_as_possible) {
  EXPECT_EQ(split_global_batch(8, 240, 32), (batch_split{30, 1}));
  EXPECT_EQ(split_global_batch(6, 240, 32), (batch_split{20, 2}));
  EXPECT_EQ(split_global_batch(1, 240, 32), (batch_split{30, 8}));
  EXPECT_EQ(split_global_batch(2, 240, 120), (batch_split{120, 1}));
}

TEST(global_batch_test, batches_of_a_rank_have_equal_sizes) {
  EXPECT_EQ(split_global_batch(2, 14, 6), (batch_split{1, 7}));
  EXPECT_EQ(split_global_batch(2, 50, 24), (batch_split{5, 5}));
}

TEST(global_batch_test, unequal_parts_are_refused) {
  EXPECT_THAT(refusal(7, 240, 32),
              HasSubstr("7 ranks cannot have equal parts of 240 samples"));
  EXPECT_THAT(refusal(2, 1, 32), HasSubstr("equal parts of 1 sample;"));
}

TEST(global_batch_test, numbers_below_one_are_refused) {
  EXPECT_THAT(refusal(0, 8, 8), HasSubstr("world_size is 0"));
  EXPECT_THAT(refusal(2, -8, 8), HasSubstr("global_batch_size is -8"));
  EXPECT_THAT(refusal(2, 8, 0), HasSubstr("max_batch_size is 0"));
}

TEST(global_batch_test, too_many_batches_are_refused) {
  EXPECT_THAT(refusal(1, std::int64_t{1} << 40, 1),
              HasSubstr("1099511627776 batches for one step are too many"));
}

} // namespace troupe::internal::test
