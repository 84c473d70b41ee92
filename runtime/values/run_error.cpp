#include "troupe/runtime/values/run_error.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "troupe/runtime/counted.hpp"
#include "troupe/runtime/process/process_exit.hpp"
#include "troupe/runtime/process/secrets.hpp"
#include "troupe/runtime/rank_logs.hpp"
#include "troupe/runtime/rank_names.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe {

using namespace internal;

namespace {

std::string with(std::string cause, const std::string& what) {
  return what.empty() ? cause : cause + ": " + what;
}

} // namespace

std::string to_string(const rank_failure& x) {
  switch (x.kind) {
    case rank_failure::kind_type::exception:
      return with("exception", x.what);
    case rank_failure::kind_type::exit_code:
      return with(concat("exit(", x.code, ")"), x.what);
    case rank_failure::kind_type::signal:
      return with(
        to_string(process_exit{process_exit::kind::signaled, x.code, {}}),
        x.what);
    case rank_failure::kind_type::thread_exception:
      // A process says so itself in its last words.
      return x.what.starts_with("ended by ")
               ? x.what
               : with("exception in a thread", x.what);
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
  /// The process has ended without an error for Troupe: see its log.
  bool ended_by_itself = false;
};

bool ends_by_itself(rank_failure::kind_type x) {
  using kind = rank_failure::kind_type;
  return x == kind::exit_code || x == kind::signal
         || x == kind::thread_exception;
}

// Groups equal causes, in the order of their lowest ranks.
std::vector<cause_group> grouped(const std::map<int, rank_failure>& ranks) {
  std::vector<cause_group> result;
  for (auto& [rank, cause] : ranks) {
    auto text = to_string(cause);
    auto i = std::ranges::find(result, text, &cause_group::text);
    if (i == result.end())
      i = result.insert(i, {std::move(text), {}, ends_by_itself(cause.kind)});
    i->ranks.push_back(rank);
  }
  return result;
}

/// "; 18 more ranks failed" for what *groups* have beyond the limit; cuts them.
std::string cut_groups(std::vector<cause_group>& groups) {
  std::size_t more = 0;
  for (auto i = max_listed_causes; i < groups.size(); ++i)
    more += groups[i].ranks.size();
  groups.resize(std::min(groups.size(), max_listed_causes));
  return more == 0 ? "" : counted(more, "more rank") + " failed";
}

std::string line_of(const cause_group& x, const fs::path& run_path) {
  auto result = rank_list(x.ranks);
  result.front() = 'R';
  result += ": ";
  auto is_cut = x.text.size() > max_cause_size;
  result += cut_text(x.text, max_cause_size);
  if (run_path.empty())
    return is_cut ? result + "… (cut; `ranks` of the error has more)" : result;
  if (!is_cut && !x.ended_by_itself)
    return result;
  auto log = log_name(x.ranks.front());
  return result + (is_cut ? "… (cut; see " : " (see ")
         + (run_path / run_layout::logs / log).string() + ')';
}

} // namespace

std::string internal::failures_text(const std::map<int, rank_failure>& ranks) {
  auto groups = grouped(ranks);
  auto more = cut_groups(groups);
  auto result = joined(groups, "; ", [](auto& x) {
    return concat(rank_list(x.ranks), ": ", x.text);
  });
  return more.empty() ? result : result + "; " + more;
}

run_error internal::make_run_error(std::map<int, rank_failure> ranks,
                                   const fs::path& run_path) {
  run_error result{ec::rank_failed, {}, std::move(ranks)};
  auto groups = grouped(result.ranks);
  auto more = cut_groups(groups);
  for (auto& group : groups) {
    if (!result.message.empty())
      result.message += '\n';
    result.message += line_of(group, run_path);
  }
  if (!more.empty())
    result.message += '\n' + more;
  return result;
}

run_error internal::make_run_error(error reason) {
  return {reason.code, cut_reason(redacted(reason.message)), {}};
}

} // namespace troupe
