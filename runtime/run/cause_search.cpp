#include "troupe/runtime/run/cause_search.hpp"

#include <algorithm>
#include <utility>

#include "troupe/runtime/report/rank_places.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

const rank_snapshot& of(int rank, const cause_search::snapshots& ranks) {
  return ranks[static_cast<std::size_t>(rank)];
}

/// Ranks that have left their group without a secondary failure and have not
/// said why: they may still be in a hook. Not those that wait for others
/// themselves. Includes those whose processes have ended without a report.
std::vector<int> leavers(const attempt_tracker& attempt,
                         const cause_search::snapshots& ranks,
                         const rank_meetings& meetings) {
  std::vector<int> result;
  for (int rank = 0; rank < attempt.world_size(); ++rank) {
    if (attempt.loop_over(rank) || attempt.gone(rank))
      continue;
    auto& shown = of(rank, ranks);
    auto may_say_why = has_left(shown) && meetings.call_of(rank).empty();
    if (may_say_why || shown.has_ended)
      result.push_back(rank);
  }
  return result;
}

} // namespace

// A rank that gave up on its peers is not the one to blame. The end of a call
// or a collective may carry the order to end before `stop_loop` arrives, and a
// loop may turn it into another exception.
void cause_search::loop_ended(attempt_tracker& attempt, rank_meetings& meetings,
                              const loop_end& x, const snapshots& ranks) {
  auto& shown = of(x.rank, ranks);
  std::vector<int> late;
  if (x.reason.code == ec::timeout && shown.gave_up)
    late = late_in_collectives(ranks, x.rank);
  if (!attempt.end_ordered())
    for (auto rank : late)
      attempt.timed_out(rank, x.reason.message);
  auto secondary = shown.failed == collective_failure::others;
  auto may_know =
    x.was_stopped || x.was_in_call || x.reason.code == ec::stopped || secondary;
  auto stopped = may_know && attempt.end_ordered();
  attempt.loop_ended(x.rank, x.reason, stopped || !late.empty(), secondary);
  if (x.reason || attempt.end_ordered())
    return;
  if (auto ok = meetings.loop_ended(x.rank); !ok)
    attempt.record_misuse(x.rank, ok.error().message);
}

cause_search::step cause_search::failed(attempt_tracker& attempt,
                                        const snapshots& ranks,
                                        const rank_meetings& meetings) {
  if (is_settling_)
    return {};
  if (attempt.lacks_cause()) {
    auto is_over = awaited_ && remaining(attempt, ranks, meetings).empty();
    if (is_over || !attempt.may_learn_cause())
      attempt.blame_secondary();
    else if (!std::exchange(is_searching_, true))
      return {step::kind::look, cause_patience, {}, {}};
  }
  return attempt.failed() ? end(attempt) : step{};
}

cause_search::step cause_search::looked(attempt_tracker& attempt,
                                        const snapshots& ranks,
                                        const rank_meetings& meetings) {
  if (attempt.lacks_cause() && !awaited_) {
    awaited_ = leavers(attempt, ranks, meetings);
    if (!awaited_->empty())
      return {step::kind::look, limits_.exit, {}, {}};
  } else if (attempt.lacks_cause()) {
    for (auto rank : remaining(attempt, ranks, meetings))
      if (!of(rank, ranks).has_ended) // Else its end comes by itself.
        attempt.timed_out(
          rank,
          concat(
            "left the collectives of other ranks, and its loop had not ended ",
            duration_text(limits_.exit), " later"));
  }
  return failed(attempt, ranks, meetings);
}

cause_search::step cause_search::end(const attempt_tracker& attempt) {
  auto& [rank, failure] = *attempt.failures().begin();
  step result{step::kind::end, {}, {}, {}};
  result.reason = {ec::stopped,
                   concat("rank ", rank, " failed: ", to_string(failure))};
  if (limits_.in_process) {
    result.grace = limits_.stop;
  } else if (failure.kind == rank_failure::kind_type::exception) {
    is_settling_ = true;
    result.delay = settle_time;
  }
  return result;
}

std::vector<int> cause_search::remaining(const attempt_tracker& attempt,
                                         const snapshots& ranks,
                                         const rank_meetings& meetings) const {
  auto result = leavers(attempt, ranks, meetings);
  std::erase_if(result, [this](int rank) {
    return std::ranges::find(*awaited_, rank) == awaited_->end();
  });
  return result;
}

} // namespace troupe::internal
