#include "troupe/runtime/report/rank_meetings.hpp"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "troupe/runtime/text.hpp"

namespace troupe::internal {

rank_barrier::rank_barrier(int world_size)
  : ranks_(static_cast<std::size_t>(world_size)) {}

expected<std::optional<barrier_release>> rank_barrier::arrive(barrier_arrival x,
                                                              time_point now) {
  TROUPE_TRY_VOID(admit(x));
  ranks_[static_cast<std::size_t>(x.rank)].here = x.kind;
  if (arrived_++ == 0)
    since_ = now;
  if (x.rank == 0 && x.kind == meeting_kind::broadcast)
    release_ = {std::move(x.payload), std::move(x.refusal)};
  TROUPE_TRY_VOID(check_kinds());
  TROUPE_TRY_VOID(check_ended());
  if (static_cast<std::size_t>(arrived_) < ranks_.size())
    return std::nullopt;
  if (release_.refusal)
    release_.refusal.message = concat("rank 0 refused broadcast ", next_, ": ",
                                      release_.refusal.message);
  for (auto& rank : ranks_)
    rank.here.reset();
  arrived_ = 0;
  ++next_;
  return std::exchange(release_, {});
}

expected<void> rank_barrier::loop_ended(int rank) {
  TROUPE_TRY_VOID(check_rank(rank, ranks_.size()));
  ranks_[static_cast<std::size_t>(rank)].ended = true;
  return check_ended();
}

std::vector<int> rank_barrier::ended() const {
  std::vector<int> result;
  for (std::size_t i = 0; i < ranks_.size(); ++i)
    if (ranks_[i].ended)
      result.push_back(static_cast<int>(i));
  return result;
}

std::optional<rank_wait> rank_barrier::waiting() const {
  if (arrived_ == 0)
    return std::nullopt;
  rank_wait result{.what = call_name(), .since = since_};
  for (std::size_t i = 0; i < ranks_.size(); ++i)
    (ranks_[i].here ? result.waiting : result.missing)
      .push_back(static_cast<int>(i));
  return result;
}

std::string rank_barrier::call_name() const {
  for (auto& x : ranks_)
    if (x.here)
      return concat(std::string{to_string(*x.here)}, " ", next_,
                    (release_.refusal ? " (which rank 0 refused: "
                                          + release_.refusal.message + ")"
                                      : ""));
  return {};
}

expected<void> rank_barrier::admit(const barrier_arrival& x) const {
  TROUPE_TRY_VOID(check_rank(x.rank, ranks_.size()));
  auto& slot = ranks_[static_cast<std::size_t>(x.rank)];
  if (slot.ended || slot.here || x.sequence != next_)
    return failure(ec::protocol,
                   concat(rank_name(x.rank), " joins ", to_string(x.kind), " ",
                          x.sequence,
                          (slot.ended  ? " after its loop ended"
                           : slot.here ? concat(" while it waits in ", next_)
                                       : concat(" instead of ", next_))));
  return {};
}

std::vector<int> rank_barrier::ranks_here(meeting_kind kind) const {
  std::vector<int> result;
  for (std::size_t i = 0; i < ranks_.size(); ++i)
    if (ranks_[i].here == kind)
      result.push_back(static_cast<int>(i));
  return result;
}

expected<void> rank_barrier::check_kinds() const {
  auto in_barrier = ranks_here(meeting_kind::barrier);
  auto in_broadcast = ranks_here(meeting_kind::broadcast);
  if (in_barrier.empty() || in_broadcast.empty())
    return {};
  return failure(ec::conflict,
                 concat("the ranks are in different calls: ",
                        rank_list(in_barrier), " in barrier ", next_, ", ",
                        rank_list(in_broadcast), " in broadcast ", next_));
}

expected<void> rank_barrier::check_ended() const {
  auto wait = waiting();
  if (!wait)
    return {};
  std::vector<int> ended;
  for (auto rank : wait->missing)
    if (ranks_[static_cast<std::size_t>(rank)].ended)
      ended.push_back(rank);
  if (ended.empty())
    return {};
  return failure(
    ec::rank_failed,
    concat(rank_list(ended),
           ended.size() == 1 ? " ended its loop" : " ended their loops", ", ",
           rank_list(wait->waiting),
           wait->waiting.size() == 1 ? " waits" : " wait", " in ", wait->what));
}

namespace {

std::string report_name(std::uint64_t index) {
  return concat("report ", index);
}

/// What *ranks* (ascending) fail for, with the call of each.
rank_mismatch mismatch_of(std::vector<int> ranks,
                          const std::function<std::string(int rank)>& call_of) {
  // Ranks of one call together, in order of their first rank.
  std::vector<std::pair<std::string, std::vector<int>>> calls;
  for (auto rank : ranks) {
    auto call = call_of(rank);
    auto i = std::ranges::find(calls, call, [](auto& x) { return x.first; });
    if (i == calls.end())
      i = calls.insert(i, {std::move(call), {}});
    i->second.push_back(rank);
  }
  auto text = joined(calls, ", ", [](auto& x) {
    return concat(rank_list(x.second), " in ", x.first);
  });
  return {std::move(ranks),
          {ec::conflict, "the ranks are in different calls: " + text}};
}

} // namespace

rank_meetings::rank_meetings(int world_size, std::uint64_t first_report,
                             int reports_ahead)
  : reports_(world_size, first_report), calls_(world_size),
    blocked_(static_cast<std::size_t>(world_size)), first_(first_report),
    committed_(first_report),
    ahead_(static_cast<std::uint64_t>(reports_ahead)) {}

expected<std::optional<report_batch>>
rank_meetings::add(rank_report x, bool waits, time_point now) {
  auto rank = x.rank;
  auto index = x.index;
  TROUPE_TRY(auto batch, reports_.add(std::move(x), now));
  if (waits)
    block(rank, index, now);
  else if (index >= first_ + ahead_)
    block(rank, index - ahead_, now);
  return batch;
}

void rank_meetings::committed(std::uint64_t index, time_point now) {
  committed_ = std::max(committed_, index + 1);
  last_commit_ = now;
  for (auto& x : blocked_)
    if (x && x->report <= index) {
      x.reset();
      --blocked_ranks_;
    }
}

void rank_meetings::await_reports(int rank, time_point now) {
  if (auto sent = reports_of(rank); sent > 0)
    block(rank, first_ + sent - 1, now);
}

expected<std::optional<barrier_release>>
rank_meetings::arrive(barrier_arrival x, time_point now) {
  return calls_.arrive(std::move(x), now);
}

expected<void> rank_meetings::loop_ended(int rank) {
  TROUPE_TRY_VOID(reports_.loop_ended(rank));
  return calls_.loop_ended(rank);
}

std::optional<rank_mismatch> rank_meetings::mismatch() const {
  if (calls_.arrived() == 0 || blocked_ranks_ == 0)
    return std::nullopt;
  // The last report that a rank blocks in decides whether there is a pair.
  std::uint64_t last = 0;
  for (auto& x : blocked_)
    if (x)
      last = std::max(last, x->report);
  std::vector<int> joined;
  std::uint64_t lacking = last; // The first report that one of `joined` lacks.
  for (int rank = 0; rank < world_size(); ++rank)
    if (in_barrier(rank) && !has_sent(rank, last)) {
      joined.push_back(rank);
      lacking = std::min(lacking, first_ + reports_of(rank));
    }
  if (joined.empty())
    return std::nullopt;
  std::vector<int> stuck;
  for (int rank = 0; rank < world_size(); ++rank)
    if (in_barrier(rank)
        || (block_of(rank) && block_of(rank)->report >= lacking))
      stuck.push_back(rank);
  return mismatch_of(std::move(stuck),
                     [this](int rank) { return call_of(rank); });
}

std::optional<rank_mismatch>
rank_meetings::mismatch(const std::vector<collective_calls>& ranks) const {
  auto at = [&](int rank) -> auto& {
    return ranks[static_cast<std::size_t>(rank)];
  };
  auto awaits = [&](int rank) {
    return at(rank).awaited > 0 && at(rank).is_final && call_of(rank).empty()
           && (at(rank).reported == 0 || has_sent(rank, at(rank).reported - 1));
  };
  std::set<int> stuck;
  for (int one = 0; one < world_size(); ++one) {
    if (!awaits(one))
      continue;
    for (int other = 0; other < world_size(); ++other)
      if (at(other).is_final && at(other).is_idle
          && at(other).called < at(one).awaited && needs(other, one))
        stuck.insert({one, other});
  }
  if (stuck.empty())
    return std::nullopt;
  return mismatch_of({stuck.begin(), stuck.end()}, [&](int rank) {
    auto call = call_of(rank);
    return call.empty() ? concat("collective ", at(rank).entered) : call;
  });
}

std::vector<rank_wait> rank_meetings::waits() const {
  std::vector<rank_wait> result;
  if (auto x = report_wait())
    result.push_back(std::move(*x));
  if (auto x = barrier_wait())
    result.push_back(std::move(*x));
  return result;
}

std::string rank_meetings::call_of(int rank) const {
  if (in_barrier(rank))
    return calls_.call_name();
  auto& x = block_of(rank);
  return x ? report_name(x->report) : std::string{};
}

void rank_meetings::block(int rank, std::uint64_t report, time_point now) {
  if (report < committed_)
    return;
  auto& x = blocked_[static_cast<std::size_t>(rank)];
  blocked_ranks_ += x ? 0 : 1;
  x = blocked{report, now};
}

bool rank_meetings::has_sent(int rank, std::uint64_t report) const {
  return first_ + reports_of(rank) > report;
}

/// Whether *rank* blocks in a call that *other* has not entered.
bool rank_meetings::needs(int rank, int other) const {
  if (in_barrier(rank))
    return !in_barrier(other);
  auto& x = block_of(rank);
  return x && !has_sent(other, x->report);
}

std::optional<rank_wait> rank_meetings::report_wait() const {
  auto next = next_report();
  rank_wait result{.what = report_name(next)};
  for (int rank = 0; rank < world_size(); ++rank) {
    auto& x = block_of(rank);
    if (x && x->report >= next) {
      if (result.waiting.empty() || x->since < result.since)
        result.since = x->since;
      result.waiting.push_back(rank);
    } else if (!x && !in_barrier(rank) && !has_sent(rank, next)) {
      result.missing.push_back(rank);
    }
  }
  if (result.waiting.empty() || result.missing.empty())
    return std::nullopt;
  // Before that, the missing ranks were waiting themselves.
  result.since =
    std::max({result.since, reports_.last_release(), last_commit_});
  return result;
}

std::optional<rank_wait> rank_meetings::barrier_wait() const {
  auto result = calls_.waiting();
  if (!result)
    return std::nullopt;
  std::erase_if(result->missing,
                [this](int rank) { return block_of(rank).has_value(); });
  if (result->missing.empty())
    return std::nullopt;
  result->since = std::max(result->since, last_commit_);
  return result;
}

} // namespace troupe::internal
