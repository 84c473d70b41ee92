#include "troupe/callbacks/encoding/text.hpp"

#include <algorithm>
#include <limits>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace troupe::internal {
namespace {

constexpr auto nan = std::numeric_limits<double>::quiet_NaN();
constexpr auto inf = std::numeric_limits<double>::infinity();

std::string json_of(const metric_value& x,
                    json_non_finite how = json_non_finite::text) {
  std::string out;
  append_json(out, x, how);
  return out;
}

std::string json_of(const metrics& x) {
  std::string out;
  append_json(out, x);
  return out;
}

TEST(json_text_test, writes_every_kind_of_value) {
  EXPECT_EQ(json_of(true), "true");
  EXPECT_EQ(json_of((std::int64_t{1} << 53) + 1), "9007199254740993");
  EXPECT_EQ(json_of(0.1), "0.1");
  EXPECT_EQ(json_of(nan), R"("NaN")");
  EXPECT_EQ(json_of(inf), R"("Infinity")");
  EXPECT_EQ(json_of(-inf), R"("-Infinity")");
  EXPECT_EQ(json_of(-inf, json_non_finite::null), "null");
  EXPECT_EQ(json_of("a \"text\"\n"), R"("a \"text\"\n")");
}

TEST(json_text_test, nests_names_with_slashes) {
  EXPECT_EQ(json_of(metrics{}), "{}");
  EXPECT_EQ(
    json_of({{"a", 1}, {"b/c", 2}, {"b/d/e", 3}, {"b/d/f", 4}, {"b0", 5}}),
    R"({"a":1,"b":{"c":2,"d":{"e":3,"f":4}},"b0":5})");
}

TEST(json_text_test, keeps_slashes_where_nesting_would_lose_a_value) {
  EXPECT_EQ(json_of({{"a", 1}, {"a/b", 2}, {"a/c/d", 3}}),
            R"({"a":1,"a/b":2,"a/c/d":3})");
  EXPECT_EQ(json_of({{"/a", 1}, {"a/", 2}, {"a//b", 3}}),
            R"({"/a":1,"a/":2,"a":{"/b":3}})");
}

TEST(json_text_test, stops_nesting_before_readers_overflow) {
  std::string name = "x";
  for (int i = 0; i < 20000; ++i)
    name += "/x";
  auto text = json_of({{name, 1}});
  EXPECT_EQ(nlohmann::json::parse(text).flatten().size(), 1u);
  EXPECT_LT(std::count(text.begin(), text.end(), '{'), 50);
}

} // namespace
} // namespace troupe::internal
