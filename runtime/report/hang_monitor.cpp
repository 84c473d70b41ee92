#include "troupe/runtime/report/hang_monitor.hpp"

#include "troupe/runtime/text.hpp"
#include "troupe/runtime/timing.hpp"

#include <algorithm>
#include <utility>

namespace troupe::internal {

namespace {

using namespace std::chrono_literals;

/// Between the first two warnings of a wait; doubled from then on.
constexpr auto first_pause = 30s;
constexpr int most_doublings = 5;

/// Missing ranks that a warning describes one by one.
constexpr std::size_t max_described = 4;

/// Standstills that are remembered one by one.
constexpr std::size_t max_standstills = 64;

/// By how much the begin of one wait may differ between checks: times of other
/// hosts travel as ages, and take as long as the message.
constexpr auto max_jitter = 1s;

bool is_same(const rank_wait& x, const rank_wait& y) {
  return x.what == y.what && std::chrono::abs(x.since - y.since) < max_jitter;
}

} // namespace

hang_monitor::hang_monitor(int world_size, limits x)
  : limits_(x), ranks_(static_cast<std::size_t>(world_size)) {}

hang_monitor::duration hang_monitor::interval() const noexcept {
  duration result = 1s;
  if (limits_.idle)
    result = std::clamp(*limits_.idle / 16, duration{10}, result);
  return result;
}

void hang_monitor::checked_after(duration time) noexcept {
  suspended_ = is_standstill(time) ? time : duration{0};
}

bool hang_monitor::is_standstill(duration between_checks) const noexcept {
  return stood_still(between_checks, interval());
}

hang_monitor::duration
hang_monitor::standstill(time_point since, time_point now,
                         duration since_check) const noexcept {
  duration result{0};
  auto add = [&](time_point begin, time_point end) {
    auto both = std::min(end, now) - std::max(begin, since);
    result += std::max(duration{0}, std::chrono::duration_cast<duration>(both));
  };
  for (auto& x : standstills_)
    add(x.begin, x.end);
  if (is_standstill(since_check))
    add(now - since_check, now);
  return result;
}

hang_monitor::duration hang_monitor::waited(time_point since,
                                            time_point now) const noexcept {
  return std::chrono::duration_cast<duration>(now - since)
         - standstill(since, now, {});
}

hang_verdict hang_monitor::check(const std::vector<rank_wait>& waits,
                                 const look_function& look, time_point now) {
  hang_verdict result;
  if (auto stopped = std::exchange(suspended_, {}); stopped > 0ms)
    standstills_.push_back({now - stopped, now});
  if (standstills_.size() > max_standstills) {
    // As one, so that a wait that began before both counts neither.
    auto oldest = standstills_.front();
    standstills_.pop_front();
    standstills_.front().begin -= oldest.end - oldest.begin;
  }
  end_waits(waits, result, now);
  std::map<int, rank_look> looks;
  for (auto& wait : waits)
    for (auto rank : wait.missing)
      if (!looks.contains(rank))
        look_at(at(rank), looks.emplace(rank, look(rank)).first->second, now);
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank)
    if (!looks.contains(rank))
      at(rank).idle = {};
  for (auto& wait : waits)
    judge(wait, looks, result, now);
  return result;
}

bool hang_monitor::has_named() const noexcept {
  return std::ranges::any_of(known_, [](auto& x) { return x.warnings > 0; });
}

void hang_monitor::end_waits(const std::vector<rank_wait>& waits,
                             hang_verdict& result, time_point now) {
  std::erase_if(known_, [&](const known_wait& x) {
    if (std::ranges::any_of(waits,
                            [&](auto& wait) { return is_same(wait, x.wait); }))
      return false;
    if (x.warnings > 0)
      result.over.push_back(x.wait.what + " is over, after "
                            + duration_text(waited(x.wait.since, now)));
    return true;
  });
}

hang_monitor::known_wait& hang_monitor::follow(const rank_wait& wait) {
  for (auto& x : known_)
    if (is_same(x.wait, wait))
      return x;
  return known_.emplace_back(known_wait{wait, 0, patience_for(wait)});
}

void hang_monitor::look_at(rank_state& rank, const rank_look& look,
                           time_point now) {
  auto is_compared = look.vitals && rank.idle.last();
  // The work of a requested stack dump counts neither as activity nor as
  // inactivity.
  auto dump_looks = is_compared ? rank.dump_looks : 0;
  if (dump_looks > 0)
    --rank.dump_looks;
  // A long gap between checks, because the machine slept or the driver was
  // stopped, does not count as inactivity of the rank.
  rank.idle.look(look.vitals, now, 2 * interval(), dump_looks == 0);
}

void hang_monitor::judge(const rank_wait& wait,
                         const std::map<int, rank_look>& looks,
                         hang_verdict& result, time_point now) {
  auto& known = follow(wait);
  auto time = waited(wait.since, now);
  auto text = to_string(wait, wait.since + time);
  auto described = std::min(wait.missing.size(), max_described);
  for (std::size_t i = 0; i < described; ++i)
    text += "; " + describe(wait.missing[i], looks.at(wait.missing[i]));
  for (auto rank : wait.missing)
    if ((limits_.wait && wait.is_limited && time >= *limits_.wait)
        || (limits_.idle && at(rank).idle.get() >= *limits_.idle))
      result.hung.emplace(rank, text);
  if (time < known.next_warning)
    return;
  if (known.warnings == 0)
    for (auto rank : wait.missing)
      if (auto& last = at(rank).idle.last(); last && !last->stopped) {
        result.show_stacks.push_back(rank);
        at(rank).dump_looks = 2;
      }
  result.named.push_back(std::move(text));
  known.next_warning =
    time + first_pause * (1 << std::min(known.warnings, most_doublings));
  ++known.warnings;
}

hang_monitor::duration hang_monitor::patience_for(const rank_wait& wait) {
  auto& awaited = wait.missing.empty() ? wait.waiting : wait.missing;
  double step = 0;
  for (auto rank : awaited) {
    auto mine = usual_step(at(rank));
    step = rank == awaited.front() ? mine : std::min(step, mine);
  }
  auto result = patience + duration{static_cast<duration::rep>(3000 * step)};
  // A rank is named before it is ended.
  return limits_.idle ? std::min<duration>(result, *limits_.idle / 2) : result;
}

double hang_monitor::usual_step(const rank_state& rank) const {
  auto steps = rank.steps;
  auto seen = std::min<std::uint64_t>(rank.steps_seen, steps.size());
  if (seen == 0)
    return 0;
  auto middle = steps.begin() + static_cast<std::ptrdiff_t>(seen / 2);
  std::nth_element(steps.begin(), middle,
                   steps.begin() + static_cast<std::ptrdiff_t>(seen));
  return *middle;
}

std::string hang_monitor::describe(int rank, const rank_look& look) {
  auto text = rank_name(rank) + " is " + look.place;
  if (!look.vitals)
    return text;
  if (look.vitals->stopped)
    return text + ", stopped by a signal";
  auto idle = at(rank).idle.get();
  return text
         + (idle >= 2 * interval()
              ? ", without CPU time or I/O for " + duration_text(idle)
              : ", at work");
}

} // namespace troupe::internal
