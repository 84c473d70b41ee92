#include "troupe/runtime/rank_names.hpp"

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
  return concat(ranks.size() == 1 ? "rank " : "ranks ",
                listed(ranks, max_listed_ranks));
}

} // namespace troupe::internal
