#include "troupe/runtime/values/run_error.hpp"

#include <string.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "troupe/runtime/process/secrets.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe {

using namespace internal;

namespace {

std::string with(std::string cause, const std::string& what) {
  return what.empty() ? cause : cause + ": " + what;
}

std::string signal_text(int signal) {
  auto name = sigabbrev_np(signal);
  auto result = concat("killed by signal ", signal);
  return name ? result + " (SIG" + name + ')' : result;
}

} // namespace

std::string to_string(const rank_failure& x) {
  switch (x.kind) {
    case rank_failure::kind_type::exception:
      return with("exception", x.what);
    case rank_failure::kind_type::exit_code:
      return with(concat("exit(", x.code, ")"), x.what);
    case rank_failure::kind_type::signal:
      return with(signal_text(x.code), x.what);
    case rank_failure::kind_type::thread_exception:
      return with("exception in a thread", x.what);
    case rank_failure::kind_type::lost:
      return with("lost", x.what);
    case rank_failure::kind_type::timeout:
      return with("timeout", x.what);
    case rank_failure::kind_type::start_failed:
      return with("did not start", x.what);
    case rank_failure::kind_type::misuse:
      return with("misuse", x.what);
  }
  return with("unknown cause", x.what);
}

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
    result += concat(separator, rank);
    separator = ", ";
  }
  result += ": ";
  if (x.text.size() <= max_cause_size)
    return result + x.text;
  result += cut_text(x.text, max_cause_size);
  if (run_path.empty())
    return result + "… (cut; `ranks` of the error has more)";
  auto log = concat("rank_", x.ranks.front(), ".log");
  return result + "… (cut; see " + (run_path / "logs" / log).string() + ')';
}

} // namespace

run_error internal::make_run_error(std::map<int, rank_failure> ranks,
                                   const fs::path& run_path) {
  run_error result{ec::rank_failed, {}, std::move(ranks)};
  for (auto& group : grouped(result.ranks)) {
    if (!result.message.empty())
      result.message += '\n';
    result.message += line_of(group, run_path);
  }
  return result;
}

run_error internal::make_run_error(error reason) {
  return {reason.code, cut_reason(redacted(reason.message)), {}};
}

} // namespace troupe
