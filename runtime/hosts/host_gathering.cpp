// Whether an attempt can start: which hosts it could use, which are left out,
// which may still come, and what is said if they are too few.

#include <algorithm>
#include <utility>

#include "troupe/runtime/counted.hpp"
#include "troupe/runtime/hosts/host_states.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

std::vector<std::size_t> host_states::usable() const {
  std::vector<std::size_t> result;
  for (std::size_t i = 0; i < hosts_.size(); ++i)
    if (auto& x = hosts_[i];
        !x.left_out_until
        && (x.state == host_state::ready || x.state == host_state::serving))
      result.push_back(i);
  return result;
}

host_decisions host_states::on_start_failed(std::set<std::size_t> failed,
                                            time_point begun, time_point now) {
  host_decisions out;
  skip_standstill(now); // The check may come after this.
  // An agent that has come since had no ranks.
  std::erase_if(failed, [this](std::size_t i) { return !hosts_[i].serves(); });
  auto others = usable();
  std::erase_if(others,
                [&failed](std::size_t i) { return failed.contains(i); });
  if (failed.contains(0) || !are_enough(others))
    return out;
  auto lasted =
    std::chrono::duration_cast<duration>(now - begun - stopped_in_attempt_);
  for (auto i : failed) {
    auto& x = hosts_[i];
    auto pause = std::max(left_out_delay.after(++x.failed_starts), 10 * lasted);
    x.left_out_until = now + pause;
    out.push_back(host_left_out{i, pause});
  }
  return out;
}

host_decisions host_states::on_loops_failed(std::set<std::size_t> failed,
                                            time_point begun, time_point now) {
  auto serves = [](run_host& x) {
    return state_behind(x) == host_state::serving;
  };
  for (auto i : failed)
    if (hosts_[i].has_trained || !serves(hosts_[i]))
      return {};
  auto is_proof = [&](run_host& x) { return x.has_trained && serves(x); };
  if (std::ranges::none_of(hosts_, is_proof))
    return {};
  return on_start_failed(std::move(failed), begun, now);
}

bool host_states::take_back_left_out() {
  auto result = false;
  for (auto& x : hosts_)
    if (x.left_out_until) {
      x.left_out_until.reset();
      result = true;
    }
  return result;
}

void host_states::decide(time_point now, host_decisions& out) {
  if (!gather_until_)
    return;
  auto found = usable();
  auto is_enough = are_enough(found);
  auto may_come = found;
  auto waits = false;
  for (std::size_t i = 0; i < hosts_.size(); ++i)
    if (auto& x = hosts_[i]; is_coming(x)) {
      may_come.push_back(i);
      waits = waits || !is_enough || !x.is_extra;
    }
  auto longer = is_enough ? duration{0} : time_for_leavers();
  auto is_late = now >= *gather_until_ + longer;
  auto may_be = are_enough(may_come);
  if (waits && !is_late && may_be && !(is_enough && starts_at_once_))
    return;
  if (!is_enough && take_back_left_out()) {
    decide(now, out); // Rather with them than not at all.
    return;
  }
  gather_until_.reset();
  if (is_enough)
    out.push_back(start_with_hosts{std::move(found)});
  else
    out.push_back(too_few_hosts{missing_error(
      found, is_late ? std::optional{gather_limit_ + longer} : std::nullopt)});
}

host_states::duration host_states::time_for_leavers() const {
  auto until = *gather_until_;
  for (auto& x : hosts_)
    if (is_coming(x))
      until = std::max(until, x.gone_at + gather_limit_);
  return std::chrono::duration_cast<duration>(until - *gather_until_);
}

bool host_states::is_coming(const run_host& x) {
  switch (x.state) {
    case host_state::expected:
    case host_state::launching:
    case host_state::connecting:
    case host_state::lost:
    case host_state::left:
      return true;
    case host_state::suspect:
      return x.before != host_state::draining;
    default:
      return false;
  }
}

bool host_states::are_enough(const std::vector<std::size_t>& hosts) const {
  if (limits_.min_ranks == 0)
    return planned_among(hosts) == planned_hosts();
  auto slots = 0;
  for (auto i : hosts)
    slots += hosts_[i].room.ranks;
  return slots >= limits_.min_ranks;
}

std::size_t
host_states::planned_among(const std::vector<std::size_t>& hosts) const {
  return static_cast<std::size_t>(std::ranges::count_if(
    hosts, [this](std::size_t i) { return hosts_[i].planned > 0; }));
}

std::size_t host_states::planned_hosts() const {
  return static_cast<std::size_t>(std::ranges::count_if(
    hosts_, [](const run_host& x) { return x.planned > 0; }));
}

std::string host_states::missing_text(const run_host& x) const {
  if (!x.problem.empty())
    return x.problem;
  switch (x.state) {
    case host_state::expected:
      if (x.reason.empty())
        return "no agent has connected to " + addresses_;
      break;
    case host_state::launching:
      if (x.reason.empty())
        return "its launcher has not started";
      break;
    case host_state::connecting:
      return concat("launched, but its agent did not connect to ", addresses_,
                    x.said.empty() ? "" : "; its launcher says: ", x.said);
    case host_state::suspect:
      return "does not answer";
    case host_state::draining:
      return "is about to leave";
    default:
      break;
  }
  if (x.launches < 2)
    return x.reason;
  return concat(x.reason, " (launched ", x.launches, " times)");
}

error host_states::missing_error(const std::vector<std::size_t>& usable,
                                 std::optional<duration> waited) const {
  // A driver without ranks is not one of the hosts that were given.
  auto all = planned_hosts();
  auto missing = all - planned_among(usable);
  std::string text =
    concat(missing, " of ", all,
           missing == 1 ? " hosts is missing" : " hosts are missing");
  if (waited)
    text += " after " + duration_text(*waited);
  text += limits_.min_ranks == 0
            ? concat(", and ", all, all == 1 ? " is needed:" : " are needed:")
            : concat(", and room for ", counted(limits_.min_ranks, "rank"),
                     " is needed:");
  for (const auto& x : hosts_) {
    if (x.planned == 0 || x.state == host_state::ready
        || x.state == host_state::serving)
      continue;
    text += concat("\n  ", x.name, ": ", missing_text(x));
    if (x.state == host_state::connecting && !x.reason.empty())
      text += "; before that: " + x.reason;
  }
  return {waited ? ec::timeout : ec::spawn, cut_reason(std::move(text))};
}

} // namespace troupe::internal
