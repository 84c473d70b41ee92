#include "troupe/runtime/rank_names.hpp"

#include <algorithm>
#include <cstddef>

#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

constexpr std::size_t max_listed_ranks = 16;

} // namespace

std::string rank_name(int rank) {
  return concat("rank ", rank);
}

std::string rank_list(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  auto listed = std::min(ranks.size(), max_listed_ranks);
  for (std::size_t i = 0; i < listed; ++i)
    text += concat((i == 0 ? "" : ", "), ranks[i]);
  if (ranks.size() > listed)
    text += concat(" and ", ranks.size() - listed, " more");
  return text;
}

} // namespace troupe::internal
