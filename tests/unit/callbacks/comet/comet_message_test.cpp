#include "troupe/callbacks/comet/comet_message.hpp"

#include <gmock/gmock.h>

#include "tests/support/sink_records.hpp"

namespace troupe::internal::test {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(comet_message_test,
     shows_the_complete_buckets_of_a_histogram_that_lacks_counts) {
  sink_records next;
  auto record =
    next(logged_histogram{3, "weights", 0, 3, 6, 14, {1, 2, 3}, {5, 7}});
  auto messages = comet_messages{{}}.of(record);
  ASSERT_TRUE(messages);
  ASSERT_EQ(messages->size(), 1u);
  auto json = std::get<std::string>(messages->front().value.variant());
  EXPECT_THAT(json, HasSubstr("\"1\":"));
  EXPECT_THAT(json, Not(HasSubstr("\"2\":")));
}

} // namespace
} // namespace troupe::internal::test
