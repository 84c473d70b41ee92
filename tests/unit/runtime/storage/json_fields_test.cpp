#include "troupe/runtime/storage/json_fields.hpp"

#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace troupe::internal::json {

struct listed_part {
  std::string name;
  std::uint8_t small = 0;
};

enum class listed_order { max, min }; // It does not travel.

struct listed {
  bool flag = false;
  std::int64_t number = 0;
  std::optional<int> perhaps;
  std::optional<int> left_out;
  std::string text;
  metrics values;
  std::vector<listed_part> parts;
  std::vector<double> numbers;
  std::map<std::string, metrics> by_name;
  ec code = ec::none;
  listed_order order = listed_order::max;
  double seconds = 0;
  std::string later = "before";
};

template <class Fields>
void fields_of(Fields& f, listed_part& x) {
  f("name", x.name)("small", x.small);
}

template <class Fields>
void fields_of(Fields& f, listed& x) {
  f.format(3, 2)("flag", x.flag)("number", x.number)("perhaps", x.perhaps);
  f.if_set("left_out", x.left_out)("text", x.text)("values", x.values);
  f("parts", x.parts)("numbers", x.numbers)("by_name", x.by_name);
  f("code", number_of(x.code))("order", number_of(x.order, listed_order::min));
  f("us", us_of(x.seconds));
  f.added("later", x.later);
}

namespace {

expected<listed> from(const std::string& text) {
  return read<listed>(text, "it", from_fields<listed>);
}

std::string example() {
  listed x{.flag = true,
           .number = std::numeric_limits<std::int64_t>::min(),
           .text = "\xff",
           .values = {{"a", 0.5}},
           .parts = {{"p", 1}, {"q", 255}},
           .numbers = {1, std::numeric_limits<double>::infinity()},
           .by_name = {{"\xfe", {{"b", 1}}}, {"\"", {}}},
           .code = ec::storage,
           .order = listed_order::min,
           .seconds = 0.25,
           .later = "now"};
  return open_object(x) + '}';
}

TEST(json_fields_test, writes_fields_in_order_and_reads_them_back) {
  auto text = example();
  EXPECT_EQ(text, R"({"format":3,
"flag":true,
"number":-9223372036854775808,
"perhaps":null,
"text":{"bytes":"ff"},
"values":{"a":0.5},
"parts":[{"name":"p","small":1},
{"name":"q","small":255}],
"numbers":[1.0,{"float":"inf"}],
"by_name":{"\"":{},
"\u0000fe":{"b":1}},
"code":5,
"order":1,
"us":250000,
"later":"now"})");
  auto x = from(text);
  ASSERT_TRUE(x) << x.error().message;
  EXPECT_EQ(open_object(*x) + '}', text);
  x->perhaps = x->left_out = 7;
  auto again = from(open_object(*x) + '}');
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->perhaps, 7);
  EXPECT_EQ(again->left_out, 7);
}

TEST(json_fields_test, refuses_what_a_field_cannot_hold) {
  auto with = [](const std::string& before, const std::string& after) {
    auto text = example();
    text.replace(text.find(before), before.size(), after);
    return from(text).error().code;
  };
  EXPECT_EQ(with("\"flag\":true", "\"flag\":1"), ec::corrupt);
  EXPECT_EQ(with("255", "256"), ec::corrupt);
  EXPECT_EQ(with("255", "-1"), ec::corrupt);
  EXPECT_EQ(with("255", "1.5"), ec::corrupt);
  EXPECT_EQ(with("\"number\"", "\"other\""), ec::corrupt);
  EXPECT_EQ(with("\"format\":3", "\"format\":4"), ec::unsupported);
  EXPECT_EQ(with("\"format\":3", "\"format\":1"), ec::unsupported);
  auto unknown = concat("\"code\":", static_cast<int>(last_ec) + 1);
  EXPECT_EQ(with("\"code\":5", unknown), ec::unsupported);
  EXPECT_EQ(with("\"code\":5", "\"code\":261"), ec::unsupported);
  EXPECT_EQ(with("\"order\":1", "\"order\":2"), ec::unsupported);
}

TEST(json_fields_test, keeps_the_default_of_a_field_that_was_added_later) {
  auto text = example();
  text.replace(text.find("\"later\""), 7, "\"others\"");
  EXPECT_EQ(from(text)->later, "before");
}

} // namespace
} // namespace troupe::internal::json
