#include "troupe/runtime/report/rank_wait.hpp"

#include <algorithm>

namespace troupe {

namespace {

constexpr std::size_t max_listed_ranks = 16;

} // namespace

std::string rank_name(int rank) {
  return "rank " + std::to_string(rank);
}

std::string rank_list(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  auto listed = std::min(ranks.size(), max_listed_ranks);
  for (std::size_t i = 0; i < listed; ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  if (ranks.size() > listed)
    text += " and " + std::to_string(ranks.size() - listed) + " more";
  return text;
}

std::string to_string(const rank_wait& x, rank_wait::time_point now) {
  using std::chrono::milliseconds;
  auto ms = std::chrono::duration_cast<milliseconds>(now - x.since).count();
  auto text = x.what + ": " + rank_list(x.missing)
              + (x.missing.size() == 1 ? " is" : " are") + " missing for ";
  if (ms >= 1000)
    text += std::to_string(ms / 1000) + " s, ";
  else
    text += std::to_string(ms) + " ms, ";
  return text + rank_list(x.waiting)
         + (x.waiting.size() == 1 ? " waits" : " wait");
}

} // namespace troupe
