#include "troupe/runtime/run/run_error.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "troupe/runtime/cut_text.hpp"
#include "troupe/runtime/process/redacted.hpp"

namespace troupe {

namespace {

struct cause_group {
  std::string text; // uncut
  std::vector<int> ranks;
};

// Groups equal causes, in the order of their lowest ranks.
std::vector<cause_group> grouped(const std::map<int, rank_failure>& ranks) {
  std::vector<cause_group> result;
  for (auto& [rank, cause] : ranks) {
    auto text = to_string(cause);
    auto i = std::ranges::find(result, text, &cause_group::text);
    if (i == result.end())
      i = result.insert(i, {std::move(text), {}});
    i->ranks.push_back(rank);
  }
  return result;
}

std::string line_of(const cause_group& x, const fs::path& run_path) {
  std::string result = "Rank ";
  auto separator = "";
  for (auto rank : x.ranks) {
    result += separator + std::to_string(rank);
    separator = ", ";
  }
  result += ": ";
  if (x.text.size() <= max_cause_size)
    return result + x.text;
  result += cut_text(x.text, max_cause_size);
  if (run_path.empty())
    return result + "… (cut; `ranks` of the error has more)";
  auto log = "rank_" + std::to_string(x.ranks.front()) + ".log";
  return result + "… (cut; see " + (run_path / "logs" / log).string() + ')';
}

} // namespace

run_error make_run_error(std::map<int, rank_failure> ranks,
                         const fs::path& run_path) {
  run_error result{ec::rank_failed, {}, std::move(ranks)};
  for (auto& group : grouped(result.ranks)) {
    if (!result.message.empty())
      result.message += '\n';
    result.message += line_of(group, run_path);
  }
  return result;
}

run_error make_run_error(error reason) {
  return {reason.code, cut_reason(redacted(reason.message)), {}};
}

} // namespace troupe
