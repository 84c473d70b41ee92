#include "troupe/trainers/torch/data/epoch_random.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

using namespace troupe;
using namespace troupe::internal;

TEST(permutation_test, holds_every_number_once) {
  for (std::int64_t size : {0, 1, 2, 3, 10, 97, 1000, 60'000}) {
    auto order = permutation(size, 1, 2);
    std::ranges::sort(order);
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(size));
    std::iota(numbers.begin(), numbers.end(), 0);
    EXPECT_EQ(order, numbers);
  }
}

TEST(permutation_test, is_the_same_on_every_machine) {
  const std::vector<std::int64_t> seed_0{5, 6, 1, 8, 7, 4, 3, 9, 0, 2};
  const std::vector<std::int64_t> seed_42{1, 6, 9, 0, 3, 8, 7, 4, 5, 2};
  EXPECT_EQ(permutation(10, 0, 0), seed_0);
  EXPECT_EQ(permutation(10, 42, 7), seed_42);
}

TEST(permutation_test, depends_on_seed_and_on_epoch) {
  std::set<std::vector<std::int64_t>> orders;
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    for (std::uint64_t epoch = 0; epoch < 20; ++epoch)
      orders.insert(permutation(50, seed, epoch));
  EXPECT_EQ(orders.size(), 400u);
}

TEST(permutation_test, gives_every_place_to_every_number_equally_often) {
  constexpr int size = 6;
  constexpr int rounds = 12'000;
  int count[size][size] = {};
  for (std::uint64_t epoch = 0; epoch < rounds; ++epoch) {
    auto order = permutation(size, 3, epoch);
    for (int i = 0; i < size; ++i)
      ++count[i][order[static_cast<std::size_t>(i)]];
  }
  // Chi-square with 25 degrees of freedom: 52.6 is exceeded once in 1,000.
  double chi_square = 0;
  constexpr double mean = rounds / size;
  for (const auto& row : count)
    for (auto n : row)
      chi_square += (n - mean) * (n - mean) / mean;
  EXPECT_LT(chi_square, 52.6);
}
