#include "troupe/callbacks/elapsed_text.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

TEST(elapsed_text_test, reads_as_people_write_it) {
  EXPECT_EQ(elapsed_text(-1), "0.0 s");
  EXPECT_EQ(elapsed_text(4.27), "4.2 s");
  EXPECT_EQ(elapsed_text(59.99), "59.9 s");
  EXPECT_EQ(elapsed_text(65), "1:05");
  EXPECT_EQ(elapsed_text(3599.9), "59:59");
  EXPECT_EQ(elapsed_text(7209), "2:00:09");
}

} // namespace
} // namespace troupe
