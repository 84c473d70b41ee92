#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "troupe/runtime/storage/checksum.hpp"
#include "troupe/runtime/storage/json.hpp"

using namespace troupe;
using namespace troupe::internal;

namespace {

template <class Metrics>
metrics there_and_back(const Metrics& x) {
  std::string text;
  json::append(text, x);
  return json::read<metrics>(text, "text", json::to_metrics).value();
}

} // namespace

TEST(json_test, writes_for_other_programs_what_they_can_read) {
  constexpr auto infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(json::text_of({{"z", json::value_of("\xff")},
                           {"a", json::value_of(-infinity)},
                           {"b", json::value_of(std::nan(""))},
                           {"c", json::value_of(0.1)},
                           {"d", json::value_of(true)},
                           {"e", json::value_of(9007199254740993)}}),
            "{\"z\":\"\xef\xbf\xbd\",\"a\":\"-Infinity\",\"b\":\"NaN\","
            "\"c\":0.1,\"d\":true,\"e\":9007199254740993}");
}

TEST(json_test, keeps_type_and_value_of_every_metric) {
  using integers = std::numeric_limits<std::int64_t>;
  using doubles = std::numeric_limits<double>;
  metrics x{{"flag", true},
            {"off", false},
            {"zero", 0},
            {"small", integers::min()},
            {"large", integers::max()},
            {"one", 1.0},
            {"third", 1.0 / 3},
            {"huge", 1e22},
            {"max", doubles::max()},
            {"denormal", doubles::denorm_min()},
            {"nan", doubles::quiet_NaN()},
            {"inf", doubles::infinity()},
            {"-inf", -doubles::infinity()},
            {"text", "with \"quotes\", \\ and \n\t\x01 and ünïcödé"},
            {"text that is called", "nan"},
            {"bytes", std::string{"\xff\xfe\0x", 4}},
            {"", "no name"},
            {"not UTF-8 \xc3", 1}};
  auto y = there_and_back(x);
  EXPECT_EQ(y, x);
  EXPECT_EQ(there_and_back(packed_metrics{x}), x);
  for (auto& [name, value] : x)
    EXPECT_EQ(y.at(name).variant().index(), value.variant().index()) << name;
}

TEST(json_test, keeps_the_sign_of_zero) {
  auto y = there_and_back(metrics{{"x", -0.0}});
  EXPECT_TRUE(std::signbit(y.at("x").number()));
}

TEST(json_test, refuses_values_that_are_not_metrics) {
  for (auto text :
       {"", "{", "[1]", "{\"x\":null}", "{\"x\":[1]}", "{\"x\":{}}",
        "{\"x\":{\"float\":\"1\"}}", "{\"x\":{\"bytes\":\"0\"}}",
        "{\"x\":{\"bytes\":\"zz\"}}", "{\"x\":18446744073709551615}"}) {
    auto x = json::read<metrics>(text, "a file", json::to_metrics);
    ASSERT_FALSE(x) << text;
    EXPECT_EQ(x.error().code, ec::corrupt);
    EXPECT_EQ(x.error().message.find("a file is malformed"), 0u);
  }
}

TEST(checked_text_test, notices_every_flipped_byte_and_every_cut) {
  std::string text = R"({"x":1)";
  append_sum(text);
  ASSERT_TRUE(has_valid_sum(text));
  for (std::size_t i = 0; i < text.size(); ++i) {
    auto damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x20);
    EXPECT_FALSE(has_valid_sum(damaged)) << i;
    EXPECT_FALSE(has_valid_sum(text.substr(0, i))) << i;
  }
}
