#include "troupe/runtime/run/run_state_machine.hpp"

#include <array>
#include <chrono>
#include <string>
#include <utility>

#include "troupe/runtime/text.hpp"

namespace troupe::internal {

bool is_about_group(const run_event& x) noexcept {
  using namespace run_events;
  return std::holds_alternative<ranks_started>(x)
         || std::holds_alternative<group_start_failed>(x)
         || std::holds_alternative<ranks_finished>(x)
         || std::holds_alternative<ranks_failed>(x)
         || std::holds_alternative<ranks_left>(x)
         || std::holds_alternative<group_stopped>(x);
}

std::string_view name_of(const run_event& x) noexcept {
  static constexpr std::array<std::string_view, 12> names{
    "wait_over",      "ranks_started",  "group_start_failed",
    "ranks_finished", "ranks_failed",   "group_stopped",
    "fatal_failure",  "stop_requested", "preempt_requested",
    "grace_over",     "completed",      "ranks_left"};
  static_assert(names.size() == std::variant_size_v<run_event>);
  return names[x.index()];
}

namespace {

std::string describe(const std::map<int, rank_failure>& failures) {
  return failures.empty() ? "the group failed" : failures_text(failures);
}

} // namespace

expected<run_decision> run_state_machine::apply(const run_event& x) {
  if (is_terminal(state_))
    return refused_event(name_of(x));
  return std::visit([this](const auto& event) { return on(event); }, x);
}

expected<run_decision> run_state_machine::on(const run_events::wait_over& x) {
  if (x.attempt != attempt_)
    return refuse_attempt(x.attempt);
  if (stopping_
      || (state_ != run_state::restarting && state_ != run_state::rescheduling))
    return refused_event("wait_over");
  return start_group();
}

expected<run_decision>
run_state_machine::on(const run_events::ranks_started& x) {
  if (x.attempt != group_)
    return refuse_attempt(x.attempt);
  if (state_ == run_state::shutting_down && stopping_)
    return stay(); // it came up while it was stopping
  if (state_ != run_state::scheduling)
    return refused_event("ranks_started");
  policy_.on_group_started();
  return go(run_state::running);
}

expected<run_decision>
run_state_machine::on(const run_events::group_start_failed& x) {
  if (x.attempt != group_)
    return refuse_attempt(x.attempt);
  if (state_ == run_state::shutting_down && stopping_)
    return stay(); // the answer to stop_group follows
  if (state_ != run_state::scheduling)
    return refused_event("group_start_failed");
  auto delay = policy_.on_start_failed(x.reason);
  if (!delay)
    return shut_down(run_state::errored, x.reason);
  return start_group_after(run_state::rescheduling, *delay, x.reason);
}

expected<run_decision>
run_state_machine::on(const run_events::ranks_finished& x) {
  if (x.attempt != group_)
    return refuse_attempt(x.attempt);
  // The loops returned while the group was stopping. If none of them left for a
  // preemption, it only came while their processes ended.
  if (stopping_ && state_ == run_state::shutting_down && !x.preempted
      && outcome_ == run_state::preempted)
    return shut_down(run_state::finished, {});
  if (stopping_)
    return stay();
  if (state_ != run_state::running)
    return refused_event("ranks_finished");
  if (x.preempted)
    return shut_down(run_state::preempted, preemption_);
  return shut_down(run_state::finished, {});
}

expected<run_decision>
run_state_machine::on(const run_events::ranks_failed& x) {
  if (x.attempt != group_)
    return refuse_attempt(x.attempt);
  if (state_ == run_state::restarting && stopping_) {
    failures_.insert(x.failures.begin(), x.failures.end());
    return stay(); // the same incident: charged already
  }
  if (stopping_)
    return stay(); // the group ends anyway
  // A loop may fail before the last rank has begun its own: that is a failure
  // of the loop, not of the start.
  if (state_ != run_state::running && state_ != run_state::scheduling)
    return refused_event("ranks_failed");
  failures_ = x.failures;
  if (preemption_)
    return shut_down(
      run_state::preempted,
      {ec::stopped, preemption_.message + "; " + describe(failures_)});
  error why{ec::rank_failed, describe(failures_)};
  auto delay = policy_.on_ranks_failed();
  if (!delay)
    return shut_down(run_state::errored, std::move(why));
  restart_delay_ = *delay;
  return stop_group(run_state::restarting, std::move(why));
}

expected<run_decision>
run_state_machine::on(const run_events::group_stopped& x) {
  if (x.attempt != group_)
    return refuse_attempt(x.attempt);
  if (!stopping_)
    return refused_event("group_stopped");
  stopping_ = false;
  if (state_ == run_state::restarting)
    return start_group_after(state_, restart_delay_, {});
  return end();
}

expected<run_decision>
run_state_machine::on(const run_events::fatal_failure& x) {
  return shut_down(run_state::errored, x.reason);
}

expected<run_decision>
run_state_machine::on(const run_events::stop_requested& x) {
  if (state_ == run_state::shutting_down)
    return stay();
  return shut_down(run_state::aborted, x.reason);
}

expected<run_decision>
run_state_machine::on(const run_events::preempt_requested& x) {
  if (state_ == run_state::shutting_down)
    return stay();
  if (state_ != run_state::running)
    return shut_down(run_state::preempted, x.reason); // No loop has begun.
  if (!preemption_)
    preemption_ = x.reason;
  return go(
    state_,
    {.what = kind::preempt_group, .attempt = group_, .reason = preemption_});
}

expected<run_decision> run_state_machine::on(const run_events::grace_over& x) {
  if (x.attempt != group_)
    return refuse_attempt(x.attempt);
  if (state_ != run_state::running || !preemption_)
    return refused_event("grace_over");
  return shut_down(
    run_state::preempted,
    {ec::stopped,
     preemption_.message + "; ranks did not leave their loops in time"});
}

expected<run_decision> run_state_machine::on(const run_events::completed&) {
  if (state_ != run_state::initializing)
    return refused_event("completed");
  return shut_down(run_state::finished, {});
}

expected<run_decision> run_state_machine::on(const run_events::ranks_left& x) {
  if (x.attempt != group_)
    return refuse_attempt(x.attempt);
  if (stopping_)
    return stay(); // the group ends anyway
  if (state_ != run_state::running && state_ != run_state::scheduling)
    return refused_event("ranks_left");
  if (preemption_)
    return shut_down(run_state::preempted, preemption_);
  auto delay = policy_.on_ranks_left();
  if (!delay) {
    failures_.clear(); // Of an earlier group.
    return shut_down(
      run_state::errored,
      {ec::rank_failed,
       concat(x.why, "; ranks have left ", policy_.leaves_in_a_row(),
              " times in a row without a report in between")});
  }
  restart_delay_ = *delay;
  return stop_group(run_state::restarting, {ec::stopped, x.why});
}

run_decision run_state_machine::go(run_state to, run_action action) {
  auto from = std::exchange(state_, to);
  if (from != to
      && (to == run_state::restarting || to == run_state::rescheduling))
    ++attempt_;
  return {from, to, std::move(action)};
}

run_decision run_state_machine::start_group() {
  group_ = attempt_;
  return go(run_state::scheduling,
            {.what = kind::start_group, .attempt = attempt_});
}

run_decision run_state_machine::start_group_after(
  run_state to, std::chrono::milliseconds delay, error why) {
  auto result = go(to);
  if (delay.count() == 0) {
    auto started = start_group();
    return {result.from, started.to, std::move(started.action)};
  }
  result.action = {.what = kind::wait,
                   .attempt = attempt_,
                   .delay = delay,
                   .reason = std::move(why)};
  return result;
}

run_decision run_state_machine::stop_group(run_state to, error why) {
  if (std::exchange(stopping_, true))
    return go(to);
  return go(
    to,
    {.what = kind::stop_group, .attempt = group_, .reason = std::move(why)});
}

run_decision run_state_machine::shut_down(run_state outcome, error why) {
  if (state_ != run_state::shutting_down || outcome_ != run_state::errored) {
    outcome_ = outcome;
    reason_ = std::move(why);
  }
  if (state_ == run_state::shutting_down)
    return stay();
  return stop_group(run_state::shutting_down, reason_);
}

run_decision run_state_machine::end() {
  return go(outcome_,
            {.what = kind::end, .attempt = attempt_, .reason = reason_});
}

tl::unexpected<error>
run_state_machine::refused_event(std::string_view event) const {
  return failure(ec::protocol, "a run that is " + std::string{to_string(state_)}
                                 + " does not expect " + std::string{event});
}

tl::unexpected<error>
run_state_machine::refuse_attempt(std::uint64_t attempt) const {
  return failure(ec::protocol, concat("attempt ", attempt,
                                      " is not the current one, ", group_));
}

} // namespace troupe::internal
