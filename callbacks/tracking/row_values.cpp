#include "troupe/callbacks/tracking/row_values.hpp"

#include <string>

#include "troupe/runtime/text.hpp"

namespace troupe {

namespace {

metrics mean_of(const journaled_batch& row) {
  struct sum {
    double total = 0;
    int count = 0;
  };
  metrics result;
  std::map<std::string, sum, std::less<>> sums;
  for (auto& values : row.values)
    for (auto& [name, value] : values) {
      if (!value.is_number()) {
        if (!result.contains(name))
          result[name] = value;
        continue;
      }
      auto& x = sums[name];
      x.total += value.number();
      ++x.count;
    }
  for (auto& [name, x] : sums)
    result[name] = x.total / x.count;
  return result;
}

} // namespace

metrics values_of(const journaled_batch& row, rank_values which) {
  if (row.values.empty())
    return {};
  if (which == rank_values::mean)
    return mean_of(row);
  auto result = row.values.front();
  if (which == rank_values::each)
    for (std::size_t rank = 0; rank < row.values.size(); ++rank)
      result.add_group(internal::concat("rank_", rank), row.values[rank]);
  return result;
}

} // namespace troupe
