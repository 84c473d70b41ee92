#include <gtest/gtest.h>

#include "troupe/callbacks/http/http_text.hpp"

namespace troupe::test {
namespace {

using std::chrono::seconds;

constexpr auto now =
  std::chrono::sys_days{std::chrono::year{2026} / std::chrono::November / 21};

TEST(retry_after_test, reads_seconds_and_dates_up_to_ten_minutes) {
  EXPECT_EQ(retry_after("0", now), seconds{0});
  EXPECT_EQ(retry_after("120", now), seconds{120});
  EXPECT_EQ(retry_after("601", now), seconds{600});
  EXPECT_EQ(retry_after("99999999999999999999", now), seconds{600});
  EXPECT_EQ(retry_after("Sat, 21 Nov 2026 00:00:30 GMT", now), seconds{30});
  EXPECT_EQ(retry_after("Sat, 21 Nov 2026 05:00:00 GMT", now), seconds{600});
  EXPECT_EQ(retry_after("Fri, 20 Nov 2026 23:00:00 GMT", now), seconds{0});
}

TEST(retry_after_test, takes_nothing_else) {
  for (const auto* x : {"", "soon", "-", "x5"})
    EXPECT_EQ(retry_after(x, now), std::nullopt) << x;
  EXPECT_EQ(retry_after("-5", now), seconds{0});
}

TEST(percent_encoded_test, keeps_plain_characters_and_those_requested) {
  EXPECT_EQ(percent_encoded("aZ09-._~"), "aZ09-._~");
  EXPECT_EQ(percent_encoded("a b/\xC3\xA4%"), "a%20b%2F%C3%A4%25");
  EXPECT_EQ(percent_encoded("a/b?c", "/"), "a/b%3Fc");
}

} // namespace
} // namespace troupe::test
