#include "troupe/runtime/store/kept_result.hpp"

#include <utility>

#include "troupe/runtime/store/retention.hpp"
#include "troupe/runtime/store/saved_run.hpp"

namespace troupe::internal {

result kept_result::unpacked() const {
  auto x = head;
  x.metrics = metrics.unpacked();
  x.best_checkpoints.reserve(best_checkpoints.size());
  for (auto& one : best_checkpoints)
    x.best_checkpoints.push_back(one.unpacked());
  return x;
}

result kept_result::unpacked_if_possible() const noexcept {
  try {
    return unpacked();
  } catch (...) { // no memory
  }
  try {
    auto x = head;
    for (auto& one : best_checkpoints)
      x.best_checkpoints.push_back({one.data, {}, one.index, one.attempt});
    x.unsent.push_back("there is no memory for the metrics of the result; "
                       "result::from_path reads them");
    return x;
  } catch (...) {
  }
  result x;
  x.status = head.status;
  x.attempts = head.attempts;
  if (head.error)
    x.error.emplace().code = head.error->code;
  return x;
}

kept_result make_result(const saved_run& x, const fs::path& path,
                        packed_metrics last_metrics) {
  kept_result out;
  out.head.status = x.status;
  out.metrics = std::move(last_metrics);
  if (!x.checkpoints.empty())
    out.head.checkpoint = x.checkpoints.back().data;
  out.best_checkpoints = retention{x.retention}.best(x.checkpoints);
  out.head.path = path;
  out.head.error = x.error;
  out.head.attempts = x.next_attempt;
  out.head.stop_reason = x.stop_reason;
  return out;
}

kept_result unsaved_result(kept_result x, run_status_kind status,
                           std::optional<run_error> reason,
                           const error& problem) {
  x.head.status = reason ? status : run_status_kind::errored;
  if (!reason)
    reason = make_run_error(problem);
  else if (reason->message != problem.message)
    reason->message +=
      "; this end of the run could not be stored: " + problem.message;
  x.head.error = std::move(reason);
  return x;
}

} // namespace troupe::internal
