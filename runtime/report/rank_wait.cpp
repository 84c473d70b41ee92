#include "troupe/runtime/report/rank_wait.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// The *stopped* ranks that *wait* lacks: itself, or because a rank that it
/// lacks waits for them.
std::vector<int> stopped_behind(const rank_wait& wait,
                                const std::vector<rank_wait>& waits,
                                const std::vector<int>& stopped) {
  std::set<int> lacking{wait.missing.begin(), wait.missing.end()};
  auto is_lacking = [&](int rank) { return lacking.contains(rank); };
  for (auto size = std::size_t{0}; size != lacking.size();) {
    size = lacking.size();
    for (auto& x : waits)
      if (std::ranges::any_of(x.waiting, is_lacking))
        lacking.insert(x.missing.begin(), x.missing.end());
  }
  auto result = stopped;
  std::erase_if(result, [&](int rank) { return !is_lacking(rank); });
  return result;
}

} // namespace

std::optional<rank_wait>
collective_wait(const std::vector<collective_place>& ranks) {
  auto waits = [](const collective_place& x) {
    return x.inside && !x.is_behind;
  };
  std::uint64_t last = 0;
  for (auto& x : ranks)
    if (waits(x))
      last = std::max(last, x.entered);
  rank_wait result{.what = concat("collective ", last), .is_limited = false};
  std::optional<rank_wait::time_point> since;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    auto& x = ranks[i];
    if (waits(x)) {
      result.waiting.push_back(static_cast<int>(i));
      if (x.entered == last)
        since = std::min(since.value_or(x.since), x.since);
    } else if (x.is_behind || x.entered < last) {
      result.missing.push_back(static_cast<int>(i));
    }
  }
  if (!since)
    return std::nullopt;
  result.since = *since;
  if (result.missing.empty()) {
    if (ranks.size() < 2 || result.waiting.size() < ranks.size())
      return std::nullopt;
    for (auto& x : ranks)
      result.since = std::max(result.since, x.since);
  }
  return result;
}

std::optional<rank_wait> start_wait(const std::vector<start_place>& ranks,
                                    const std::vector<int>& elsewhere) {
  rank_wait result{.what = "the start of the group", .is_limited = false};
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    auto& x = ranks[i];
    auto rank = static_cast<int>(i);
    if (x.since) {
      if (result.waiting.empty() || *x.since < result.since)
        result.since = *x.since;
      result.waiting.push_back(rank);
    } else if (!x.came && std::ranges::count(elsewhere, rank) == 0) {
      result.missing.push_back(rank);
    }
  }
  if (result.waiting.empty() || result.missing.empty())
    return std::nullopt;
  return result;
}

std::optional<rank_wait> end_wait(const std::vector<loop_place>& ranks,
                                  const std::vector<int>& elsewhere,
                                  const std::vector<rank_wait>& waits) {
  rank_wait result{.what = "the end of the run", .is_limited = false};
  std::optional<rank_wait::time_point> last_end;
  std::vector<int> left;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].ended) {
      result.waiting.push_back(static_cast<int>(i));
      last_end = std::max(last_end, ranks[i].ended);
    } else {
      left.push_back(static_cast<int>(i));
    }
  }
  auto is_named = [&](int rank) {
    return std::ranges::any_of(waits, [rank](auto& x) {
      return std::ranges::count(x.missing, rank) > 0;
    });
  };
  auto is_last = left.size() == 1 && last_end
                 && std::ranges::count(elsewhere, left.front()) == 0;
  for (auto rank : left) {
    auto& stopped = ranks[static_cast<std::size_t>(rank)].stopped;
    auto since = stopped ? stopped : is_last ? last_end : std::nullopt;
    if (!since || is_named(rank))
      continue;
    if (result.missing.empty() || *since < result.since)
      result.since = *since;
    result.missing.push_back(rank);
  }
  if (result.missing.empty())
    return std::nullopt;
  return result;
}

void blame_awaited(std::vector<rank_wait>& waits,
                   const std::vector<int>& elsewhere,
                   const std::vector<int>& stopped) {
  std::set<int> waiting{elsewhere.begin(), elsewhere.end()};
  for (auto& wait : waits)
    waiting.insert(wait.waiting.begin(), wait.waiting.end());
  for (auto rank : stopped)
    waiting.erase(rank);
  auto before = waits;
  for (auto& wait : waits) {
    auto missing = wait.missing;
    std::erase_if(missing, [&](int rank) { return waiting.contains(rank); });
    if (!missing.empty()) {
      wait.missing = std::move(missing);
    } else if (auto behind = stopped_behind(wait, before, stopped);
               !behind.empty()) {
      wait.missing = std::move(behind);
      std::erase_if(wait.waiting,
                    [&](int rank) { return !waiting.contains(rank); });
    }
  }
}

expected<void> check_rank(int rank, std::size_t world_size) {
  if (static_cast<std::size_t>(rank) < world_size) // a negative one is huge
    return {};
  return failure(ec::protocol, concat("there is no ", rank_name(rank),
                                      " among ", world_size));
}

std::string to_string(const rank_wait& x, rank_wait::time_point now) {
  if (x.missing.empty())
    return x.what + ": all ranks are in it for " + duration_text(now - x.since)
           + ": the network may be down, or they call different ones";
  auto text = x.what + ": " + rank_list(x.missing)
              + (x.missing.size() == 1 ? " is" : " are") + " missing for "
              + duration_text(now - x.since);
  if (!x.waiting.empty())
    text += ", " + rank_list(x.waiting)
            + (x.waiting.size() == 1 ? " waits" : " wait");
  return text;
}

} // namespace troupe::internal
