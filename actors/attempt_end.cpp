#include "troupe/actors/attempt_end.hpp"

#include "troupe/runtime/process/secrets.hpp"

namespace troupe::internal {

attempt_end end_of(const attempt_ended& x, bool is_awaited) {
  if (!x.left_for.empty())
    return {{ec::stopped, "the ranks left: " + x.left_for},
            run_events::ranks_left{x.attempt, redacted(x.left_for)}};
  if (!x.stopped && !x.preempted)
    return {{}, run_events::ranks_finished{x.attempt, false}};
  if (!x.stopped)
    return {{ec::stopped, "the ranks were preempted"},
            run_events::ranks_finished{x.attempt, true}};
  attempt_end result{{ec::stopped, "the ranks were stopped"}, std::nullopt};
  if (is_awaited)
    result.event = run_events::ranks_left{
      x.attempt, "its ranks were ended before their loops had returned"};
  return result;
}

attempt_end end_of(const attempt_failed& x, const std::string& causes) {
  auto is_known = !x.ranks.empty(); // Which ranks failed.
  attempt_end result;
  result.reason = is_known ? error{ec::rank_failed, causes}
                           : error{x.reason.code, redacted(x.reason.message)};
  if (x.is_final)
    result.event = run_events::fatal_failure{x.reason};
  else if (!x.left_for.empty())
    result.event = run_events::ranks_left{x.attempt, redacted(x.left_for)};
  else if (x.started)
    result.event = run_events::ranks_failed{x.attempt, x.ranks};
  else
    result.event = run_events::group_start_failed{
      x.attempt, is_known ? error{ec::spawn, causes} : x.reason};
  return result;
}

} // namespace troupe::internal
