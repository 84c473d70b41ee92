#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include "troupe/runtime/sweep/search_space.hpp"

namespace troupe::internal::test {

using testing::ElementsAre;
using testing::HasSubstr;

namespace {

constexpr auto inf = std::numeric_limits<double>::infinity();

std::string refusal_of(const search_space& x) {
  auto ok = validate(x);
  if (ok)
    return {};
  EXPECT_EQ(ok.error().code, ec::invalid_config);
  return ok.error().message;
}

} // namespace

TEST(search_space_test, refuses_what_cannot_be_searched) {
  EXPECT_EQ(refusal_of({{"lr", log_uniform(1e-4, 1)},
                        {"layers", integers(1, 1)},
                        {"kind", choice({"a", "b"})}}),
            "");
  EXPECT_THAT(refusal_of({}), HasSubstr("has no params"));
  EXPECT_THAT(refusal_of({{"", uniform(0, 1)}}), HasSubstr("without a name"));
  EXPECT_THAT(refusal_of({{"lr", uniform(0, 1)}, {"lr", integers(1, 2)}}),
              HasSubstr("two params called 'lr'"));
  EXPECT_THAT(
    refusal_of({{"lr", uniform(0, inf)}}),
    HasSubstr("'lr' of the sweep goes from 0 to inf: both bounds must "
              "be finite"));
  EXPECT_THAT(refusal_of({{"lr", uniform(std::nan(""), 1)}}),
              HasSubstr("must be finite"));
  EXPECT_THAT(refusal_of({{"lr", uniform(1, 0)}}),
              HasSubstr("from 1 to 0: the first bound must be the lower one"));
  EXPECT_THAT(refusal_of({{"n", integers(3, 2)}}), HasSubstr("lower one"));
  EXPECT_THAT(refusal_of({{"lr", log_uniform(-1, 1)}}),
              HasSubstr("logarithmic scale: both bounds must be above zero"));
  EXPECT_THAT(refusal_of({{"n", log_integers(0, 9)}}), HasSubstr("above zero"));
  EXPECT_THAT(refusal_of({{"n", choice({})}}), HasSubstr("without values"));
  EXPECT_THAT(refusal_of({{"n", choice({1, 2, 1})}}), HasSubstr("has 1 twice"));
}

TEST(search_space_test, gives_each_share_of_places_its_value) {
  EXPECT_EQ(value_at(uniform(-1, 3), 0.25), metric_value{0.0});
  EXPECT_NEAR(value_at(log_uniform(1e-4, 1), 0.5).number(), 1e-2, 1e-12);
  EXPECT_EQ(value_at(integers(-1, 1), 0), metric_value{-1});
  EXPECT_EQ(value_at(integers(-1, 1), 0.34), metric_value{0});
  EXPECT_EQ(value_at(integers(-1, 1), 0.999), metric_value{1});
  EXPECT_EQ(value_at(log_integers(1, 7), 0.34), metric_value{2});
  EXPECT_EQ(value_at(log_integers(1, 7), 0.999), metric_value{7});
  EXPECT_EQ(value_at(choice({"a", "b"}), 0.5), metric_value{"b"});
  EXPECT_EQ(value_at(choice({"a", "b"}), 1), metric_value{"b"});
}

TEST(search_space_test, holds_the_widest_bounds) {
  auto max = std::numeric_limits<double>::max();
  EXPECT_EQ(value_at(uniform(-max, max), 0.5), metric_value{0.0});
  using limits = std::numeric_limits<std::int64_t>;
  auto all = integers(limits::min(), limits::max());
  EXPECT_EQ(value_at(all, 0), metric_value{limits::min()});
  EXPECT_EQ(value_at(all, 1), metric_value{limits::max()});
}

TEST(search_space_test, makes_the_values_of_a_grid) {
  EXPECT_THAT(grid_values(uniform(0, 1), 3), ElementsAre(0.0, 0.5, 1.0));
  EXPECT_THAT(grid_values(uniform(0, 1), 1), ElementsAre(0.5));
  EXPECT_THAT(grid_values(integers(1, 3), 5), ElementsAre(1, 2, 3));
  EXPECT_THAT(grid_values(integers(0, 100), 3), ElementsAre(0, 50, 100));
  EXPECT_THAT(grid_values(choice({true, false}), 1), ElementsAre(true, false));
}

TEST(search_space_test, has_a_text_that_tells_spaces_apart) {
  search_space x{{"lr", log_uniform(0.5, 1)}, {"k", choice({"a", 2})}};
  EXPECT_EQ(space_text(x),
            R"([{"name":"lr","low":0.5,"high":1.0,"scale":"log"},)"
            R"({"name":"k","choice":["a",2]}])");
}

} // namespace troupe::internal::test
