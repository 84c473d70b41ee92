#include "troupe/runtime/run/run_state_machine.hpp"

#include <array>
#include <chrono>
#include <string>
#include <utility>

namespace troupe {

bool tells_of_group(const run_event& x) noexcept {
  using namespace run_events;
  return std::holds_alternative<group_started>(x)
         || std::holds_alternative<group_start_failed>(x)
         || std::holds_alternative<ranks_finished>(x)
         || std::holds_alternative<ranks_failed>(x)
         || std::holds_alternative<group_stopped>(x)
         || std::holds_alternative<group_stop_failed>(x);
}

std::string_view name_of(const run_event& x) noexcept {
  static constexpr std::array<std::string_view, 13> names{
    "size_decided",   "size_undecided", "group_started",   "group_start_failed",
    "ranks_finished", "ranks_failed",   "group_stopped",   "group_stop_failed",
    "run_failed",     "stop_requested", "abort_requested", "preempt_requested",
    "grace_over"};
  static_assert(names.size() == std::variant_size_v<run_event>);
  return names[x.index()];
}

namespace {

/// How long to wait before asking again for a group that cannot be had.
constexpr auto undecided_delay = std::chrono::seconds{1};

std::string describe(const std::map<int, rank_failure>& failures) {
  if (failures.empty())
    return "the group failed";
  std::string text;
  for (auto& [rank, failure] : failures) {
    text += text.empty() ? "rank " : "; rank ";
    text += std::to_string(rank) + ": " + to_string(failure);
  }
  return text;
}

} // namespace

run_action run_state_machine::begin() const {
  return {.what = kind::decide_size, .attempt = attempt_};
}

expected<run_decision> run_state_machine::apply(const run_event& x) {
  if (is_terminal(state_))
    return refuse(name_of(x));
  return std::visit([this](const auto& event) { return on(event); }, x);
}

expected<run_decision>
run_state_machine::on(const run_events::size_decided& x) {
  if (x.world_size < 1)
    return failure(ec::protocol, "a group cannot have "
                                   + std::to_string(x.world_size) + " ranks");
  switch (state_) {
    case run_state::initializing:
    case run_state::restarting:
    case run_state::rescheduling:
      if (stopping_)
        return refuse("size_decided");
      world_size_ = x.world_size;
      return start_group();
    case run_state::running:
      if (preemption_)
        return stay();
      world_size_ = x.world_size;
      return stop_group(
        run_state::resizing,
        {ec::stopped,
         "the group is resized to " + std::to_string(x.world_size) + " ranks"});
    default:
      return refuse("size_decided");
  }
}

expected<run_decision>
run_state_machine::on(const run_events::size_undecided&) {
  switch (state_) {
    case run_state::initializing:
    case run_state::restarting:
    case run_state::rescheduling:
      if (stopping_)
        return refuse("size_undecided");
      return go(state_, {.what = kind::decide_size,
                         .attempt = attempt_,
                         .delay = undecided_delay});
    case run_state::running:
      return stay();
    default:
      return refuse("size_undecided");
  }
}

expected<run_decision>
run_state_machine::on(const run_events::group_started& x) {
  if (x.attempt != group_)
    return refuse_attempt(x.attempt);
  if (state_ == run_state::shutting_down && stopping_)
    return stay(); // it came up while it was told to stop
  if (state_ != run_state::scheduling)
    return refuse("group_started");
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
    return refuse("group_start_failed");
  auto delay = policy_.on_start_failed(x.reason);
  if (!delay)
    return shut_down(run_state::errored, x.reason);
  return go(run_state::rescheduling, {.what = kind::decide_size,
                                      .attempt = attempt_,
                                      .delay = *delay,
                                      .reason = x.reason});
}

expected<run_decision>
run_state_machine::on(const run_events::ranks_finished& x) {
  if (x.attempt != group_)
    return refuse_attempt(x.attempt);
  // The loops returned while the group was told to stop. If none of them left
  // for a preemption, it only came while their processes ended.
  if (stopping_ && state_ == run_state::shutting_down && !x.preempted
      && outcome_ == run_state::preempted)
    return shut_down(run_state::finished, {});
  if (stopping_)
    return stay();
  if (state_ != run_state::running)
    return refuse("ranks_finished");
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
    return stay(); // the group goes anyway
  // A loop may fail before the last rank has begun its own: that is the loop's
  // failure, not one of the start.
  if (state_ != run_state::running && state_ != run_state::scheduling)
    return refuse("ranks_failed");
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
    return refuse("group_stopped");
  stopping_ = false;
  switch (state_) {
    case run_state::restarting:
      return go(state_, {.what = kind::decide_size,
                         .attempt = attempt_,
                         .delay = restart_delay_});
    case run_state::resizing:
      return start_group();
    default: // shutting_down
      return end(outcome_, reason_);
  }
}

expected<run_decision>
run_state_machine::on(const run_events::group_stop_failed& x) {
  if (x.attempt != group_)
    return refuse_attempt(x.attempt);
  if (!stopping_)
    return refuse("group_stop_failed");
  stopping_ = false;
  // Another group beside the remains of this one is out of the question.
  if (state_ != run_state::shutting_down)
    return shut_down(run_state::errored, x.reason);
  if (outcome_ == run_state::errored)
    return end(run_state::errored, reason_);
  return end(run_state::errored, x.reason);
}

expected<run_decision> run_state_machine::on(const run_events::run_failed& x) {
  return shut_down(run_state::errored, x.reason);
}

expected<run_decision>
run_state_machine::on(const run_events::stop_requested& x) {
  if (state_ == run_state::shutting_down)
    return stay();
  return shut_down(run_state::aborted, x.reason);
}

expected<run_decision>
run_state_machine::on(const run_events::abort_requested& x) {
  return end(run_state::aborted, x.reason);
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
    return refuse("grace_over");
  return shut_down(
    run_state::preempted,
    {ec::stopped,
     preemption_.message + "; ranks did not leave their loops in time"});
}

run_decision run_state_machine::go(run_state to, run_action action) {
  auto from = std::exchange(state_, to);
  if (from != to
      && (to == run_state::restarting || to == run_state::rescheduling
          || to == run_state::resizing)) {
    ++attempt_;
    ++attempts_;
  }
  return {from, to, std::move(action)};
}

run_decision run_state_machine::start_group() {
  group_ = attempt_;
  return go(run_state::scheduling, {.what = kind::start_group,
                                    .attempt = attempt_,
                                    .world_size = world_size_});
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

run_decision run_state_machine::end(run_state outcome, error why) {
  outcome_ = outcome;
  reason_ = std::move(why);
  stopping_ = false;
  return go(outcome,
            {.what = kind::end, .attempt = attempt_, .reason = reason_});
}

tl::unexpected<error> run_state_machine::refuse(std::string_view event) const {
  return failure(ec::protocol, "a run that is " + std::string{to_string(state_)}
                                 + " does not expect " + std::string{event});
}

tl::unexpected<error>
run_state_machine::refuse_attempt(std::uint64_t attempt) const {
  return failure(ec::protocol, "attempt " + std::to_string(attempt)
                                 + " is not the current one, "
                                 + std::to_string(group_));
}

} // namespace troupe
