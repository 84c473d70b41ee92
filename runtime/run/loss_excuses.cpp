#include "troupe/runtime/run/loss_excuses.hpp"

#include <csignal>

namespace troupe::internal {

namespace {

using kind = rank_failure::kind_type;

/// Whether the end of a rank's host may have ended the rank this way, or kept
/// it from starting: the spawner there may end first. No limit is met by ranks
/// of a host that is silent, also before it *is_lost*.
bool is_loss(const loss_excuses::failed_rank& x, bool is_lost) {
  return x.kind == kind::lost || x.kind == kind::start_failed
         || (is_lost && x.kind == kind::timeout)
         || (x.kind == kind::signal
             && (x.code == SIGKILL || x.code == SIGTERM));
}

/// When the rank ended, was over a limit or broke a rule, if that may follow
/// from the loss of another host. A loop meets it in an exception; a watchdog
/// of its libraries may end the process instead. Or the loop catches the
/// exception and leaves others waiting in a report. Or the rank waits for data
/// of that host while others, which have theirs, wait for both.
std::optional<loss_excuses::time_point>
end_of(const loss_excuses::failed_rank& x) {
  switch (x.kind) {
    case kind::exception:
      return x.loop_ended;
    case kind::exit_code:
    case kind::signal:
    case kind::thread_exception:
      return x.process_ended;
    case kind::timeout:
    case kind::misuse:
      return x.end_ordered;
    default:
      return std::nullopt;
  }
}

} // namespace

void loss_excuses::lost(const host_lost& x, const std::string& why,
                        bool has_ranks) {
  if (!is_elastic_ && !x.was_draining)
    return;
  left_.insert_or_assign(x.host, host_end{why, true});
  if (has_ranks)
    losses_.emplace_back(x.last_sign, why);
}

std::string
loss_excuses::excuse(const std::vector<failed_rank>& failures) const {
  std::string result;
  for (auto& failure : failures) {
    auto found = excuse_of(failure);
    if (!found)
      return {};
    if (result.empty())
      result = *found;
  }
  return result;
}

const std::string* loss_excuses::excuse_of(const failed_rank& x) const {
  if (auto left = left_.find(x.host);
      left != left_.end() && is_loss(x, left->second.is_lost))
    return &left->second.why;
  auto ended = end_of(x);
  for (auto& [last_sign, why] : losses_)
    if (ended && *ended >= last_sign)
      return &why;
  return nullptr;
}

} // namespace troupe::internal
