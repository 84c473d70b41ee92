#include "troupe/callbacks/tensorboard/event_text.hpp"

#include <cstdio>
#include <limits>

#include <gtest/gtest.h>

namespace troupe::internal::tensorboard {
namespace {

using std::chrono::seconds;
using std::chrono::system_clock;

constexpr event_head at(std::int64_t step, std::int64_t wall = 2) {
  return {system_clock::time_point{seconds{wall}}, step};
}

template <class Append>
std::string hex(Append append) {
  std::string bytes;
  append(bytes);
  std::string result;
  for (unsigned char c : bytes) {
    char text[3];
    std::snprintf(text, sizeof(text), "%02x", c);
    result += text;
  }
  return result;
}

std::string scalar(event_head head, std::string_view tag, double value) {
  return hex([&](auto& out) { append_scalar(out, head, tag, value); });
}

// TensorBoard's own reader could read these bytes when they were recorded.
TEST(event_text_test, agrees_with_the_golden_records_byte_for_byte) {
  EXPECT_EQ(hex([](auto& out) { append_version(out, at(0, 1).time); }),
            "1800000000000000a37f4b2209000000000000f03f1a0d627261696e2e4576656e"
            "743a3286bf577a");
  EXPECT_EQ(scalar(at(3), "train/loss", 0.5),
            "200000000000000029eda95009000000000000004010032a130a110a0a74726169"
            "6e2f6c6f7373150000003f89c6b87d");
  EXPECT_EQ(scalar(at(std::int64_t{1} << 40), "a", 0.5),
            "1c00000000000000c8c1951d090000000000000040108080808080202a0a0a080a"
            "0161150000003fd9ffe6ca");
  EXPECT_EQ(hex([](auto& out) { append_restart(out, at(4)); }),
            "0f000000000000006d532b0909000000000000004010043a0208017601b5eb");
  EXPECT_EQ(hex([](auto& out) { append_text(out, at(3), "note", "hi"); }),
            "2f000000000000006d5d1d5009000000000000004010032a220a200a046e6f7465"
            "420c0807120412020801420268694a0a0a060a04746578742002a8288296");
  const logged_histogram w{3, "w", -1, 1, 0.5, 2, {0, 1}, {1, 2}};
  EXPECT_EQ(hex([&](auto& out) { append_histogram(out, at(3), w); }),
            "6500000000000000ebd05a6909000000000000004010032a580a560a01772a5109"
            "000000000000f0bf11000000000000f03f19000000000000084021000000000000"
            "e03f29000000000000004032100000000000000000000000000000f03f3a100000"
            "00000000f03f0000000000000040792b1bc2");
}

TEST(event_text_test, writes_every_nan_alike) {
  auto nan = std::numeric_limits<double>::quiet_NaN();
  const auto* golden = "1700000000000000e7cef81e09000000000000004010032a0a0a08"
                       "0a0161150000c07fbb0f2211";
  EXPECT_EQ(scalar(at(3), "a", nan), golden);
  EXPECT_EQ(scalar(at(3), "a", -nan), golden);
}

TEST(event_text_test, replaces_invalid_utf8) {
  EXPECT_EQ(scalar(at(3), "\xff", 1), scalar(at(3), "\xef\xbf\xbd", 1));
}

} // namespace
} // namespace troupe::internal::tensorboard
