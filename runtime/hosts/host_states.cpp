#include "troupe/runtime/hosts/host_states.hpp"

#include <algorithm>
#include <utility>

#include "troupe/runtime/text.hpp"
#include "troupe/runtime/timing.hpp"

namespace troupe::internal {

bool run_host::is_here() const noexcept {
  switch (state) {
    case host_state::ready:
    case host_state::serving:
    case host_state::suspect:
    case host_state::draining:
      return true;
    default:
      return false;
  }
}

bool run_host::serves() const noexcept {
  auto known = state == host_state::suspect ? before : state;
  // Without ranks, one that is about to leave has left at once.
  return known == host_state::serving || known == host_state::draining;
}

host_states::host_states(std::vector<run_host> hosts, host_limits limits,
                         std::string addresses, random_function random)
  : hosts_(std::move(hosts)), limits_(limits), addresses_(std::move(addresses)),
    random_(std::move(random)) {
  for (auto& x : hosts_)
    if (x.is_launched)
      x.first_launch = ++launches_;
}

host_decisions host_states::gather(time_point now, duration limit,
                                   bool at_once) {
  host_decisions out;
  starts_at_once_ = at_once;
  gather_until_ = now + limit;
  gather_limit_ = limit;
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    auto& x = hosts_[i];
    if (x.state == host_state::expected && x.is_launched && !x.next_launch)
      launch(i, now, out);
  }
  decide(now, out);
  return out;
}

host_decisions host_states::on_launched(std::size_t host, std::uint64_t launch,
                                        time_point now) {
  auto& x = hosts_[host];
  if (x.has_launcher && x.launch == launch
      && x.state == host_state::launching) {
    x.state = host_state::connecting;
    x.launched = now;
  }
  return {};
}

void host_states::on_launcher_said(std::size_t host, std::uint64_t launch,
                                   std::string said) {
  auto& x = hosts_[host];
  if (x.launch == launch)
    x.said = std::move(said);
}

host_decisions host_states::on_launcher_ended(std::size_t host,
                                              std::uint64_t launch,
                                              std::string reason, bool may_help,
                                              time_point now) {
  host_decisions out;
  auto& x = hosts_[host];
  if (x.launch != launch || !std::exchange(x.has_launcher, false))
    return out;
  if (x.state == host_state::launching || x.state == host_state::connecting)
    launch_failed(host, std::move(reason), may_help || x.was_here, now, out);
  else if (x.is_here()) // Its agent outlives ssh, and mostly srun, or is gone.
    x.said = std::move(reason);
  decide(now, out);
  return out;
}

void host_states::admit(std::size_t host, const agent_facts& x, bool is_guest,
                        host_room room, time_point now) {
  auto& mine = hosts_[host];
  // A host that is launched has the name that it was given with.
  if (!mine.is_launched && !x.host.empty())
    mine.name = x.host;
  mine.is_named = true;
  mine.incarnation = x.incarnation;
  mine.is_guest = is_guest;
  mine.own_name = x.host;
  mine.boot = x.boot;
  mine.address = x.address;
  mine.driver_address = x.driver_address;
  mine.admitted = now;
  mine.room = std::move(room);
  mine.asked_since.clear();
}

bool host_states::may_have_more(std::size_t host, std::uint64_t incarnation,
                                const host_room& room, time_point now) {
  return room.ranks < hosts_[host].room.ranks
         && time_asked(host, incarnation, now) < late_room;
}

bool host_states::may_be_free_soon(std::size_t host, std::uint64_t incarnation,
                                   duration loss_limit, time_point now) {
  auto asked = time_asked(host, incarnation, now);
  return state_behind(hosts_[host]) == host_state::draining
         || asked < loss_limit;
}

host_states::duration host_states::time_asked(std::size_t host,
                                              std::uint64_t incarnation,
                                              time_point now) {
  skip_standstill(now); // The check may come after this.
  auto& known = hosts_[host].asked_since;
  // One that still asks has its place by then.
  auto limit = 2 * std::max(late_room, limits_.lost_after);
  std::erase_if(known, [&](auto& x) {
    return x.first != incarnation && now - x.second > limit;
  });
  auto since = known.emplace(incarnation, now).first->second;
  return std::chrono::duration_cast<duration>(now - since);
}

host_decisions host_states::on_hello(std::size_t host,
                                     std::uint64_t incarnation,
                                     time_point now) {
  host_decisions out;
  auto& x = hosts_[host];
  if (std::ranges::find(x.fenced, incarnation) != x.fenced.end()
      || (x.is_here() && x.incarnation != incarnation)) {
    out.push_back(fence_agent{host, incarnation});
    if (!x.is_here())
      release(host);
    return out;
  }
  if (x.is_guest)
    drop_launcher(host, out);
  x.heard = x.answered = x.last_sign = now;
  x.said.clear();
  if (!x.is_here()) {
    x.incarnation = incarnation;
    x.state = host_state::ready;
    if (limits_.min_ranks == 0 && !x.was_here) // It was awaited until now.
      x.launches = std::min(x.launches, 1);
    x.was_here = true;
    x.has_trained = false;
    x.next_launch.reset();
    x.reason.clear();
    x.problem.clear();
    x.left_out_until.reset();
  } else if (x.state == host_state::suspect) {
    x.state = x.before;
  }
  decide(now, out);
  return out;
}

// It has its first ranks in the next attempt.
void host_states::add_guest(int slots) {
  run_host added;
  added.name = concat("host ", hosts_.size());
  added.is_launched = false;
  added.is_extra = true;
  added.planned = added.room.ranks = slots;
  added.first_rank = hosts_.back().first_rank + hosts_.back().ranks;
  hosts_.push_back(std::move(added));
}

void host_states::deal(const std::vector<host_share>& shares) {
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    hosts_[i].first_rank = shares[i].first_rank;
    hosts_[i].ranks = shares[i].ranks;
  }
}

host_decisions host_states::on_refused(std::size_t host, std::string cause,
                                       time_point now) {
  host_decisions out;
  auto& x = hosts_[host];
  if (x.is_here() || x.state == host_state::given_up)
    return out; // The agent that counts is another one.
  drop_launcher(host, out);
  launch_failed(host, std::move(cause), !x.is_launched, now, out);
  decide(now, out);
  return out;
}

host_decisions host_states::on_tick(std::size_t host, std::uint64_t incarnation,
                                    time_point now) {
  host_decisions out;
  auto& x = hosts_[host];
  if (x.incarnation != incarnation) {
    out.push_back(fence_agent{host, incarnation});
    return out;
  }
  if (!x.is_here())
    return out;
  // An agent sends one a tick after the answer to the one before; it may have
  // waited while the driver stood still.
  x.last_sign = std::min(now, x.answered + limits_.tick);
  x.heard = x.answered = now;
  x.said.clear();
  if (x.state == host_state::suspect) {
    x.state = x.before;
    out.push_back(host_answers{host});
    decide(now, out);
  }
  return out;
}

host_decisions host_states::on_gone(std::size_t host, std::uint64_t incarnation,
                                    std::string cause, time_point now) {
  host_decisions out;
  auto& x = hosts_[host];
  if (x.incarnation != incarnation)
    return out;
  if (!x.is_here()) {
    release(host);
    return out;
  }
  lose(host, std::move(cause), now, out);
  decide(now, out);
  return out;
}

host_decisions host_states::on_draining(std::size_t host,
                                        std::uint64_t incarnation,
                                        duration grace, time_point now) {
  host_decisions out;
  auto& x = hosts_[host];
  if (!x.is_here() || x.incarnation != incarnation)
    return out;
  x.gone_at = now + grace;
  auto serves = x.serves();
  state_behind(x) = host_state::draining;
  if (!serves)
    let_go(host, now, out);
  decide(now, out);
  return out;
}

void host_states::let_go(std::size_t host, time_point now,
                         host_decisions& out) {
  auto& x = hosts_[host];
  fence(host, out);
  drop_launcher(host, out);
  x.state = host_state::left;
  x.reason = "has left";
  plan_launch(host, true, now, out);
}

void host_states::on_attempt_started(const std::vector<std::size_t>& hosts) {
  stopped_in_attempt_ = {};
  for (auto i : hosts) {
    auto& x = hosts_[i];
    auto& state = state_behind(x);
    if (state == host_state::ready)
      state = host_state::serving;
  }
}

host_decisions host_states::on_attempt_ended(time_point now) {
  host_decisions out;
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    auto& x = hosts_[i];
    auto& state = state_behind(x);
    if (state == host_state::serving)
      state = host_state::ready;
    else if (state == host_state::draining)
      let_go(i, now, out);
  }
  return out;
}

void host_states::on_progress() noexcept {
  for (auto& x : hosts_) {
    // Its ranks have reported, even if it is silent by now.
    if (state_behind(x) == host_state::serving)
      x.has_trained = true;
    if (x.state == host_state::serving) {
      x.failures_in_a_row = x.give_ups = x.failed_starts = 0;
      x.launches = std::min(x.launches, 1);
    }
  }
}

host_decisions host_states::check(time_point now) {
  host_decisions out;
  skip_standstill(now);
  end_long_checks(now, out);
  for (std::size_t i = 0; i < hosts_.size(); ++i)
    check_host(i, now, out);
  decide(now, out);
  return out;
}

void host_states::launch(std::size_t host, time_point now,
                         host_decisions& out) {
  auto& x = hosts_[host];
  x.state = host_state::launching;
  x.next_launch.reset();
  x.problem.clear();
  x.said.clear();
  x.launch = x.launch == 0 ? x.first_launch : ++launches_;
  x.has_launcher = true;
  x.launched = now;
  ++x.launches;
  out.push_back(launch_agent{host, x.launch});
}

void host_states::launch_failed(std::size_t host, std::string reason,
                                bool may_help, time_point now,
                                host_decisions& out) {
  auto& x = hosts_[host];
  x.state = host_state::expected;
  x.problem.clear();
  x.reason = std::move(reason);
  plan_launch(host, may_help, now, out);
}

void host_states::lose(std::size_t host, std::string cause, time_point now,
                       host_decisions& out) {
  auto& x = hosts_[host];
  auto state = state_behind(x);
  fence(host, out);
  drop_launcher(host, out);
  x.reason = std::move(cause);
  if (!x.said.empty())
    x.reason += "; " + x.said;
  out.push_back(
    host_lost{host, x.reason, state == host_state::draining, x.last_sign});
  x.state = state == host_state::draining ? host_state::left : host_state::lost;
  plan_launch(host, true, now, out);
}

void host_states::plan_launch(std::size_t host, bool may_help, time_point now,
                              host_decisions& out) {
  auto& x = hosts_[host];
  ++x.failures_in_a_row;
  // The limit on joining is that of a host that may still boot.
  auto is_awaited = limits_.min_ranks == 0 && gather_until_ && !x.was_here;
  auto is_over = x.is_launched && !is_awaited && limits_.max_relaunches >= 0
                 && x.launches > limits_.max_relaunches;
  if (!may_help || is_over)
    give_up(host, now, out);
  else if (x.is_launched)
    x.next_launch = std::max(now + delay_after(x.failures_in_a_row), x.gone_at);
}

// No attempt waits for it.
void host_states::give_up(std::size_t host, time_point now,
                          host_decisions& out) {
  auto& x = hosts_[host];
  x.state = host_state::given_up;
  host_given_up decision{host, x.reason};
  if (x.is_launched && limits_.min_ranks > 0) {
    decision.pause = late_launch_delay.after(++x.give_ups);
    x.next_launch = std::max(now + decision.pause, x.gone_at);
  }
  out.push_back(std::move(decision));
}

void host_states::fence(std::size_t host, host_decisions& out) {
  auto& x = hosts_[host];
  out.push_back(fence_agent{host, *x.incarnation});
  x.fenced.push_back(*x.incarnation);
  if (x.fenced.size() > max_fenced)
    x.fenced.pop_front();
  x.incarnation.reset();
}

void host_states::drop_launcher(std::size_t host, host_decisions& out) {
  auto& x = hosts_[host];
  if (std::exchange(x.has_launcher, false))
    out.push_back(end_launcher{host, x.launch});
}

void host_states::check_host(std::size_t host, time_point now,
                             host_decisions& out) {
  auto& x = hosts_[host];
  if (x.left_out_until && *x.left_out_until <= now)
    x.left_out_until.reset();
  if (x.next_launch && *x.next_launch <= now) {
    launch(host, now, out);
  } else if (x.state == host_state::connecting
             && now - x.launched >= limits_.join) {
    drop_launcher(host, out);
    launch_failed(host, missing_text(x), true, now, out);
  } else if (x.is_here()) {
    auto silence = std::chrono::duration_cast<duration>(now - x.heard);
    if (silence >= limits_.lost_after) {
      lose(host, "it did not answer for " + duration_text(silence), now, out);
    } else if (silence >= limits_.suspect_after
               && x.state != host_state::suspect) {
      x.before = std::exchange(x.state, host_state::suspect);
      out.push_back(host_suspected{host, silence});
    }
  }
}

// An agent that has a host but no end of its checks sends no ticks yet: its
// host was frozen, or its storage hangs.
void host_states::end_long_checks(time_point now, host_decisions& out) {
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    auto& x = hosts_[i];
    if (!x.incarnation || x.is_here() || now - x.admitted < limits_.join)
      continue;
    out.push_back(fence_agent{i, *x.incarnation});
    release(i);
  }
}

void host_states::skip_standstill(time_point now) {
  auto gap = checked_ ? now - *checked_ : time_point::duration{0};
  auto stopped = standstill_before(now);
  checked_ = now;
  if (!stood_still(gap, limits_.tick))
    return;
  stopped_ = stopped;
  stopped_until_ = now;
  stopped_in_attempt_ += gap;
  for (auto& x : hosts_) {
    x.heard = std::min(now, x.heard + gap);
    x.launched = std::min(now, x.launched + gap);
    x.admitted = std::min(now, x.admitted + gap);
    for (auto& known : x.asked_since)
      known.second = std::min(now, known.second + gap);
  }
  if (gather_until_)
    *gather_until_ += gap;
}

host_states::duration
host_states::standstill_before(time_point now) const noexcept {
  auto known =
    now - stopped_until_ < standstill_memory ? stopped_ : duration{0};
  // What came meanwhile may be handled before the check that is late.
  auto gap = checked_ ? now - *checked_ : time_point::duration{0};
  if (!stood_still(gap, limits_.tick))
    return known;
  return std::max(known, std::chrono::duration_cast<duration>(gap));
}

host_states::duration host_states::delay_after(int failures) {
  return with_jitter(launch_delay.after(failures), random_());
}

} // namespace troupe::internal
