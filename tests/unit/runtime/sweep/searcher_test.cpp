#include <set>
#include <stdexcept>

#include <gmock/gmock.h>

#include "troupe/runtime/sweep/searcher.hpp"

namespace troupe::internal::test {

namespace {

const search_space space{{"lr", log_uniform(1e-4, 1)},
                         {"layers", integers(1, 4)}};

} // namespace

TEST(searcher_test, a_grid_has_each_combination_once) {
  search_space grid{{"a", choice({1, 2})}, {"b", integers(1, 3)}};
  auto search = grid_search();
  std::vector<std::string> all;
  for (std::size_t i = 0; auto x = search->ask(grid, i); ++i)
    all.push_back(to_string(*x));
  EXPECT_THAT(all, testing::ElementsAre("a=1 b=1", "a=1 b=2", "a=1 b=3",
                                        "a=2 b=1", "a=2 b=2", "a=2 b=3"));
  EXPECT_TRUE(search->is_finite());
  EXPECT_EQ(search->count(grid), 6u);
  search_space wide(64, {"a", choice({1, 2})});
  EXPECT_FALSE(search->count(wide)) << "more than can be counted";
  EXPECT_TRUE(search->validate({}));
  EXPECT_FALSE(grid_search(0)->validate({}));
}

TEST(searcher_test, chooses_by_seed_and_index_alone) {
  for (auto make : {random_search, sobol_search}) {
    auto a = make(1), b = make(1), c = make(2);
    EXPECT_FALSE(a->is_finite());
    EXPECT_EQ(a->name(), b->name());
    EXPECT_NE(a->name(), c->name());
    for (std::size_t i : {7, 3})
      EXPECT_EQ(a->ask(space, i), b->ask(space, i));
    EXPECT_NE(a->ask(space, 0), a->ask(space, 1));
    EXPECT_NE(a->ask(space, 0), c->ask(space, 0));
  }
}

TEST(searcher_test, sobol_fills_each_part_of_the_space_once) {
  search_space two{{"x", uniform(0, 1)}, {"y", uniform(0, 1)}};
  for (std::uint64_t seed : {0, 5}) {
    auto search = sobol_search(seed);
    std::set<int> x, y;
    // Boost leaves out the first point of the sequence, the origin.
    for (std::size_t i = 15; i < 31; ++i) {
      auto point = *search->ask(two, i);
      x.insert(static_cast<int>(point.at("x").number() * 16));
      y.insert(static_cast<int>(point.at("y").number() * 16));
    }
    EXPECT_EQ(x.size(), 16u);
    EXPECT_EQ(y.size(), 16u);
  }
}

} // namespace troupe::internal::test
