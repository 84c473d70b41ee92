#include "troupe/runtime/run/leave_plan.hpp"

#include <algorithm>
#include <utility>

#include "troupe/runtime/report/report.hpp"

namespace troupe::internal {

void leave_plan::ran_ahead(std::uint64_t index) noexcept {
  ahead_ = std::max(ahead_.value_or(0), index);
}

bool leave_plan::continue_later(std::string why, std::int64_t deadline_ms) {
  if (continuation_ && continuation_->deadline_ms <= deadline_ms)
    return false;
  continuation_ = reason{std::move(why), deadline_ms};
  is_over_ = false;
  return true;
}

std::optional<std::string> leave_plan::time_is_over(std::int64_t deadline_ms) {
  if (!continuation_ || continuation_->deadline_ms != deadline_ms)
    return std::nullopt;
  is_over_ = true;
  return continuation_->why;
}

std::optional<leave_plan::notice> leave_plan::notice_for(std::uint64_t index) {
  if (!enough_ && !preemption_ && !continuation_)
    return std::nullopt;
  // A rank that did not wait for this answer may be ahead by that many reports;
  // before it is further ahead, it has the answer.
  if (!after_)
    after_ = ahead_ && *ahead_ >= index ? index + max_reports_ahead : index;
  using kind = stop_info::kind_type;
  if (enough_)
    return notice{*after_, *enough_, 0, kind::finished};
  if (preemption_)
    return notice{*after_, preemption_->why, preemption_->deadline_ms,
                  kind::preempted};
  return notice{*after_, continuation_->why, continuation_->deadline_ms,
                kind::continues};
}

leave_plan::outcome leave_plan::outcome_of(bool all_returned,
                                           std::uint64_t next_report) const {
  // Whatever else ranks were to leave for, these were ended for that.
  if (is_over_ && !all_returned)
    return {false, continuation_->why};
  auto all_know = after_ && next_report > *after_;
  if (enough_ || !all_know)
    return {};
  if (preemption_)
    return {true, {}};
  return {false, continuation_ ? continuation_->why : std::string{}};
}

std::int64_t local_deadline::of(std::int64_t name_ms, std::int64_t left_ms,
                                std::int64_t now_ms) noexcept {
  if (std::exchange(name_ms_, name_ms) != name_ms)
    at_ms_ = left_ms < leave_plan::never_ms - now_ms ? now_ms + left_ms
                                                     : leave_plan::never_ms;
  return at_ms_;
}

} // namespace troupe::internal
