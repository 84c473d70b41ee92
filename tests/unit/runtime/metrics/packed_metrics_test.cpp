#include "troupe/runtime/metrics/packed_metrics.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

using namespace troupe;
using namespace troupe::internal;
using namespace std::literals;

namespace {

const metrics every_kind{
  {"b/no", false},         {"b/yes", true},
  {"i", std::int64_t{-7}}, {"i/most", std::numeric_limits<std::int64_t>::max()},
  {"loss", 0.5},           {"note", "größe\0\n"s},
  {"note/empty", ""},      {std::string(300, 'n'), 1}};

} // namespace

TEST(packed_metrics_test, unpack_to_what_was_packed) {
  packed_metrics x{every_kind};
  EXPECT_FALSE(x.empty());
  EXPECT_EQ(x.unpacked(), every_kind);
  packed_metrics copy;
  EXPECT_TRUE(copy.empty());
  EXPECT_EQ(copy.unpacked(), metrics{});
  ASSERT_TRUE(copy.assign(x.bytes()));
  EXPECT_EQ(copy.unpacked(), every_kind);
  EXPECT_EQ(copy, x);
  ASSERT_TRUE(copy.assign({}));
  EXPECT_TRUE(copy.empty());
  EXPECT_NE(copy, x);
}

TEST(packed_metrics_test, keep_every_bit_of_a_number) {
  using limits = std::numeric_limits<double>;
  for (auto number : {-0.0, 5e-324, -1e-310, limits::max(), -limits::infinity(),
                      0.1, limits::quiet_NaN(), -limits::quiet_NaN()}) {
    auto x = packed_metrics{{"x", number}}.unpacked();
    EXPECT_EQ(std::bit_cast<std::uint64_t>(x.at("x").number()),
              std::bit_cast<std::uint64_t>(number))
      << number;
  }
}

TEST(packed_metrics_test, show_names_and_values_in_order) {
  std::string names;
  packed_metrics{{"b", "text"}, {"a", 1}, {"c", true}}.for_each(
    [&](std::string_view name, const packed_metrics::value& x) {
      names += std::string{name} + std::to_string(x.index());
    });
  EXPECT_EQ(names, "a1b3c0");
}

// They come from another process.
TEST(packed_metrics_test, refuse_bytes_that_were_cut) {
  auto bytes = packed_metrics{every_kind}.bytes();
  std::size_t whole = 0; // Cut between two metrics, fewer are left.
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    packed_metrics x{{"before", 1}};
    if (x.assign(bytes.substr(0, size)))
      EXPECT_EQ(x.unpacked().size(), whole++) << size;
    else
      EXPECT_EQ(x, (metrics{{"before", 1}})) << size;
  }
  EXPECT_EQ(whole, every_kind.size() + 1);
}

TEST(packed_metrics_test, refuse_damaged_bytes) {
  packed_metrics x;
  auto one = packed_metrics{{"a", 1}}.bytes();
  auto two = packed_metrics{{"b", "text"}}.bytes();
  EXPECT_TRUE(x.assign(one + two));
  EXPECT_FALSE(x.assign(two + one));
  EXPECT_FALSE(x.assign(one + one));
  auto with = [](std::string bytes, std::size_t at, char c) {
    bytes[at] = c;
    return bytes;
  };
  constexpr std::size_t kind_at = 5, length_at = 6;
  EXPECT_FALSE(x.assign(with(one, kind_at, 4)));
  EXPECT_FALSE(x.assign(with(two, length_at, 5)));
  EXPECT_FALSE(x.assign(with(two, length_at + 7, '\xff')));
  EXPECT_FALSE(x.assign(with(one, 3, '\xff'))); // of the name
  EXPECT_EQ(x, (metrics{{"a", 1}, {"b", "text"}}));
}

TEST(packed_metrics_test, find_a_value_by_its_name) {
  packed_metrics x{{"a", 1}, {"b", "text"}, {"c/d", 0.5}, {"e", true}};
  EXPECT_EQ(x.find("a"), metric_value{1});
  EXPECT_EQ(x.find("b"), metric_value{"text"});
  EXPECT_EQ(x.find("c"), std::nullopt);
  EXPECT_EQ(x.find("f"), std::nullopt);
  EXPECT_EQ(x.find_number("c/d"), 0.5);
  EXPECT_EQ(x.find_number("e"), 1.0);
  EXPECT_EQ(x.find_number("b"), std::nullopt);
  EXPECT_EQ(x.find_number(""), std::nullopt);
  EXPECT_EQ(packed_metrics{}.find("a"), std::nullopt);
}

TEST(packed_metrics_test, are_searched_up_to_the_first_match) {
  packed_metrics x{{"a", 1}, {"b", 2}, {"c", 3}};
  std::string seen;
  auto visit_until = [&](std::string_view last) {
    seen.clear();
    return x.any_of([&](std::string_view name, const packed_metrics::value&) {
      seen += name;
      return name == last;
    });
  };
  EXPECT_TRUE(visit_until("b"));
  EXPECT_EQ(seen, "ab");
  EXPECT_FALSE(visit_until("d"));
  EXPECT_EQ(seen, "abc");
}
