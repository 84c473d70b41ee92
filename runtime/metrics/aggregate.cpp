#include "troupe/runtime/metrics/aggregate.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace troupe {

namespace {

/// Squares are taken of deviations relative to the largest, so that none
/// overflows.
double deviation(const std::vector<double>& xs, double mean) {
  double largest = 0;
  for (auto x : xs)
    largest = std::max(largest, std::abs(x - mean));
  if (largest == 0)
    return 0;
  double sum = 0;
  for (auto x : xs) {
    auto part = (x - mean) / largest;
    sum += part * part;
  }
  return largest * std::sqrt(sum / static_cast<double>(xs.size()));
}

rank_spread spread_of(const std::vector<double>& xs) {
  constexpr auto nan = std::numeric_limits<double>::quiet_NaN();
  if (std::ranges::any_of(xs, [](double x) { return std::isnan(x); }))
    return {nan, nan, nan, nan, xs.size()};
  rank_spread result;
  result.count = xs.size();
  auto [min, max] = std::ranges::minmax(xs);
  result.min = min;
  result.max = max;
  auto n = static_cast<double>(xs.size());
  double sum = 0;
  double scaled = 0; // exact to the last bit or two, and never overflows
  for (auto x : xs) {
    sum += x;
    scaled += x / n;
  }
  // Rounding takes the mean of equal numbers past them.
  auto mean = std::isfinite(sum) ? sum / n : scaled;
  result.mean = std::isnan(mean) ? mean : std::clamp(mean, min, max);
  result.std =
    std::isfinite(min) && std::isfinite(max) ? deviation(xs, result.mean) : nan;
  return result;
}

} // namespace

std::map<std::string, rank_spread> aggregate(std::span<const metrics> ranks) {
  std::map<std::string, std::vector<double>> numbers;
  for (auto& rank : ranks)
    for (auto& [name, value] : rank)
      if (value.is_number())
        numbers[name].push_back(value.number());
  std::map<std::string, rank_spread> result;
  for (auto& [name, xs] : numbers)
    result.emplace(name, spread_of(xs));
  return result;
}

metrics aggregated_metrics(std::span<const metrics> ranks) {
  metrics result;
  for (auto& [name, x] : aggregate(ranks))
    result.add_group(
      name, {{"mean", x.mean}, {"min", x.min}, {"max", x.max}, {"std", x.std}});
  return result;
}

} // namespace troupe
