#pragma once

#include <algorithm>
#include <random>
#include <vector>

namespace troupe::internal::test {

/// Samples *begin* to *end* - 1.
struct slice {
  long begin;
  long end;
};

/// Cuts *whole* at random into *parts* slices in order, which may be empty.
inline std::vector<slice> cut(slice whole, int parts, std::mt19937& random) {
  std::uniform_int_distribution<long> place{whole.begin, whole.end};
  std::vector<long> ends{whole.end};
  while (static_cast<int>(ends.size()) < parts)
    ends.push_back(place(random));
  std::sort(ends.begin(), ends.end());
  std::vector<slice> result;
  for (auto begin = whole.begin; auto end : ends) {
    result.push_back({begin, end});
    begin = end;
  }
  return result;
}

/// The batches of each rank.
using split = std::vector<std::vector<slice>>;

/// A way of dividing *samples* among *ranks*, a function of *seed*. The first
/// ones are those that go wrong: all on one rank, nothing anywhere but there,
/// one sample each.
inline split split_of(long samples, int ranks, unsigned seed) {
  std::mt19937 random{seed};
  split result(static_cast<std::size_t>(ranks));
  if (seed == 0) {
    result.front() = {{0, samples}};
  } else if (seed == 1) {
    result.back() = {{0, 3}, {3, samples}};
  } else if (seed == 2) {
    for (long i = 0; i < samples; ++i)
      result[static_cast<std::size_t>(i * ranks / samples)].push_back(
        {i, i + 1});
  } else {
    auto shares = cut({0, samples}, ranks, random);
    for (std::size_t rank = 0; rank < result.size(); ++rank)
      result[rank] = cut(shares[rank], 3, random);
  }
  return result;
}

} // namespace troupe::internal::test
