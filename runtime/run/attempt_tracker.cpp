#include "troupe/runtime/run/attempt_tracker.hpp"

#include <algorithm>
#include <csignal>

#include "troupe/runtime/process/process_exit.hpp"
#include "troupe/runtime/process/secrets.hpp"

namespace troupe::internal {

namespace {

/// The termination message of a process; its end may have none.
std::string message_of(const process_exit& cause) {
  auto is_cut = cause.termination_message.size() >= max_termination_message;
  return is_cut ? redactor{}.of_cut(cause.termination_message)
                : cause.termination_message;
}

rank_failure failure_of(const process_exit& cause) {
  using kind = rank_failure::kind_type;
  switch (cause.how) {
    case process_exit::kind::lost:
      return {kind::lost, 0, cause.termination_message, 0, {}};
    case process_exit::kind::signaled:
      // An exception ends a process by SIGABRT.
      return {cause.termination_message.empty() || cause.code == SIGKILL
                ? kind::signal
                : kind::thread_exception,
              cause.code,
              message_of(cause),
              0,
              {}};
    case process_exit::kind::exited:
      break;
  }
  return {kind::exit_code, cause.code, message_of(cause), 0, {}};
}

/// Whether *cause* may result from an order to end. A spawner that hangs does
/// not report that it was a kill.
bool is_killed(const process_exit& cause) {
  return cause.how == process_exit::kind::lost
         || (cause.how == process_exit::kind::signaled
             && cause.code == SIGKILL);
}

} // namespace

attempt_tracker::attempt_tracker(int world_size)
  : ranks_(static_cast<std::size_t>(world_size)) {}

attempt_tracker::rank_state& attempt_tracker::at(int rank) {
  return ranks_.at(static_cast<std::size_t>(rank));
}

void attempt_tracker::order_end(const std::vector<int>& ended) {
  end_ordered_ = true;
  for (auto rank : ended)
    at(rank).ended_before = true;
}

void attempt_tracker::launched(int rank, int pid) {
  at(rank).pid = pid;
}

void attempt_tracker::launch_failed(int rank, const error& reason) {
  // The order to end may cancel a launch.
  if (!end_ordered_)
    fail(rank,
         {rank_failure::kind_type::start_failed, 0, reason.message, 0, {}});
  at(rank).gone = true;
}

void attempt_tracker::ready(int rank, std::string host) {
  at(rank).ready = true;
  at(rank).host = std::move(host);
}

void attempt_tracker::loop_ended(int rank, const error& reason, bool by_order,
                                 bool secondary) {
  auto& x = at(rank);
  x.loop_over = true;
  x.returned = !reason && !by_order;
  if (!reason || by_order)
    return;
  if (secondary)
    secondary_.emplace(rank, reason);
  else
    fail(rank, {rank_failure::kind_type::exception, 0, reason.message, 0, {}});
}

bool attempt_tracker::may_learn_cause() const noexcept {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](auto& x) { return !x.loop_over && !x.gone; });
}

void attempt_tracker::blame_secondary() {
  for (auto& [rank, reason] : secondary_)
    fail(rank, {rank_failure::kind_type::exception, 0, reason.message, 0, {}});
}

void attempt_tracker::exited(int rank, const process_exit& cause) {
  auto& x = at(rank);
  // The end of a process that was ordered to end is not news, unless it had
  // another cause at the same time. A process that came too late is refused and
  // exits by itself.
  auto refused = !x.ready && cause.how == process_exit::kind::exited;
  auto by_order = end_ordered_ && !x.ended_before;
  if (!x.loop_over && !(by_order && (is_killed(cause) || refused)))
    fail(rank, failure_of(cause));
  x.gone = true;
}

void attempt_tracker::lost(int rank, std::string why) {
  fail(rank, {rank_failure::kind_type::lost, 0, std::move(why), 0, {}});
}

void attempt_tracker::record_misuse(int rank, std::string what) {
  fail(rank, {rank_failure::kind_type::misuse, 0, std::move(what), 0, {}});
}

void attempt_tracker::timed_out(int rank, std::string what) {
  fail(rank, {rank_failure::kind_type::timeout, 0, std::move(what), 0, {}});
}

void attempt_tracker::give_up(int rank) {
  at(rank).gone = true;
}

void attempt_tracker::leave_behind(int rank, std::string why) {
  using kind = rank_failure::kind_type;
  if (!loop_over(rank))
    left_behind_.emplace(
      rank, completed(rank, {kind::lost, 0, std::move(why), 0, {}}));
  give_up(rank);
}

bool attempt_tracker::all_ready() const noexcept {
  return std::ranges::all_of(ranks_, &rank_state::ready);
}

bool attempt_tracker::all_gone() const noexcept {
  return std::ranges::all_of(ranks_, &rank_state::gone);
}

bool attempt_tracker::all_returned() const noexcept {
  return std::ranges::all_of(ranks_, &rank_state::returned);
}

bool attempt_tracker::loop_failed() const noexcept {
  return std::any_of(failures_.begin(), failures_.end(), [this](auto& x) {
    return ranks_[static_cast<std::size_t>(x.first)].ready;
  });
}

std::vector<int> attempt_tracker::not_ready() const {
  return ranks_without(&rank_state::ready);
}

std::vector<int> attempt_tracker::still_there() const {
  return ranks_without(&rank_state::gone);
}

std::vector<int> attempt_tracker::ranks_without(bool rank_state::*flag) const {
  std::vector<int> result;
  for (int rank = 0; rank < world_size(); ++rank)
    if (!(ranks_[static_cast<std::size_t>(rank)].*flag))
      result.push_back(rank);
  return result;
}

void attempt_tracker::fail(int rank, rank_failure failure) {
  // The first one counts.
  failures_.emplace(rank, completed(rank, std::move(failure)));
}

rank_failure attempt_tracker::completed(int rank, rank_failure failure) const {
  auto& x = ranks_.at(static_cast<std::size_t>(rank));
  // The text goes to the journal, the page and the console.
  failure.what = redacted(failure.what);
  failure.pid = x.pid;
  failure.host = x.host;
  return failure;
}

} // namespace troupe::internal
