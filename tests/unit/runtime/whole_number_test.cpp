#include "troupe/runtime/whole_number.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace troupe::internal {

TEST(whole_number_test, reads_a_number_that_is_the_whole_text) {
  EXPECT_EQ(whole_number<int>("0"), 0);
  EXPECT_EQ(whole_number<int>("-12"), -12);
  EXPECT_EQ(whole_number<int>("007"), 7);
  EXPECT_EQ(whole_number<std::uint64_t>("18446744073709551615"), UINT64_MAX);
  EXPECT_EQ(whole_number<std::uint64_t>("00ffAB", 16), 0xffabu);
}

TEST(whole_number_test, reads_nothing_else) {
  for (auto text : {"", " ", " 1", "1 ", "+1", "1.0", "1x", "x", "-", "0x1"})
    EXPECT_FALSE(whole_number<int>(text)) << text;
  EXPECT_FALSE(whole_number<int>({}));
  EXPECT_FALSE(whole_number<std::uint64_t>("-1"));
  EXPECT_FALSE(whole_number<int>("8", 8));
}

TEST(whole_number_test, reads_no_number_that_does_not_fit) {
  EXPECT_EQ(whole_number<std::uint16_t>("65535"), 65535);
  EXPECT_FALSE(whole_number<std::uint16_t>("65536"));
  EXPECT_FALSE(whole_number<std::uint64_t>("18446744073709551616"));
  EXPECT_FALSE(whole_number<std::int64_t>("-9223372036854775809"));
}

TEST(digits_test, a_text_of_digits_has_at_least_one_and_nothing_else) {
  for (auto text : {"0", "0123456789", "00000000000000000000000000"})
    EXPECT_TRUE(is_digits(text)) << text;
  for (auto text : {"", "-1", "+1", "1 ", "1.0", "a", "\xb2"})
    EXPECT_FALSE(is_digits(text)) << text;
}

TEST(digits_test, hexadecimal_digits_are_in_lower_case) {
  for (auto text : {"0", "a", "0123456789abcdef"})
    EXPECT_TRUE(is_hex(text)) << text;
  for (auto text : {"", "A", "g", "0x1", "-a", "a "})
    EXPECT_FALSE(is_hex(text)) << text;
}

} // namespace troupe::internal
