#include "troupe/runtime/report/attempt_monitor.hpp"

#include <algorithm>
#include <utility>

#include "troupe/runtime/report/rank_places.hpp"

namespace troupe::internal {

namespace {

/// How long a rank in a call may show no activity until no other thread of it
/// is expected to call a collective.
constexpr auto call_patience = std::chrono::seconds{5};

} // namespace

attempt_monitor::attempt_monitor(std::vector<bool> have_gpus, limits x)
  : have_gpus_(std::move(have_gpus)), limits_(x), seen_(have_gpus_.size()),
    loops_(have_gpus_.size()), idle_in_calls_(have_gpus_.size()),
    waited_(have_gpus_.size()),
    hangs_(static_cast<int>(have_gpus_.size()), {x.report, x.hang}),
    stragglers_(static_cast<int>(have_gpus_.size())) {
  for (std::size_t rank = 0; rank < seen_.size(); ++rank)
    seen_[rank].rank = static_cast<int>(rank);
}

// -- what ranks show

void attempt_monitor::learn(const std::vector<rank_snapshot>& ranks,
                            bool examined) {
  for (auto& shown : ranks) {
    if (!knows(shown.rank))
      continue;
    auto& known = seen_[static_cast<std::size_t>(shown.rank)];
    if (examined)
      known.vitals = shown.vitals;
    else
      known = shown;
  }
}

void attempt_monitor::loop_ended(int rank,
                                 const std::vector<rank_snapshot>& ranks,
                                 time_point now) {
  for (auto& shown : ranks) {
    if (!knows(shown.rank))
      continue;
    // How their processes are is known from the last look.
    auto& known = seen_[static_cast<std::size_t>(shown.rank)];
    auto is_stopped = known.is_stopped;
    auto has_ended = known.has_ended;
    known = shown;
    known.is_stopped = is_stopped;
    known.has_ended = has_ended;
  }
  loops_[static_cast<std::size_t>(rank)].ended = now;
}

void attempt_monitor::look_for_stopped(time_point now) {
  for (std::size_t rank = 0; rank < loops_.size(); ++rank) {
    auto& loop = loops_[rank];
    if (loop.ended || !seen_[rank].is_stopped)
      loop.stopped.reset();
    else if (!loop.stopped)
      loop.stopped = now;
  }
}

// -- checks

std::vector<rank_wait>
attempt_monitor::waits(const rank_meetings& meetings) const {
  return waits_of(meetings, seen_, loops_);
}

std::vector<collective_calls> attempt_monitor::calls() const {
  std::vector<collective_calls> result;
  for (auto& x : seen_)
    result.push_back(collective_calls_of(x));
  return result;
}

std::vector<int>
attempt_monitor::ranks_to_examine(const rank_meetings& meetings) const {
  std::vector<int> result;
  for (auto& wait : waits(meetings))
    result.insert(result.end(), wait.missing.begin(), wait.missing.end());
  if (!limits_.in_process)
    if (auto suspected = meetings.mismatch(calls()))
      result.insert(result.end(), suspected->ranks.begin(),
                    suspected->ranks.end());
  std::ranges::sort(result);
  auto again = std::ranges::unique(result);
  result.erase(again.begin(), again.end());
  return result;
}

std::optional<rank_mismatch>
attempt_monitor::mismatch(const rank_meetings& meetings, time_point now) {
  auto all = calls();
  auto suspected = meetings.mismatch(all);
  // While a signal has stopped a rank, no one knows which call it would make,
  // nor what the others would do then: only `hang_timeout` limits their waits.
  auto is_stopped = [](const loop_place& x) { return x.stopped.has_value(); };
  if (suspected && std::ranges::any_of(loops_, is_stopped)) {
    std::ranges::fill(idle_in_calls_, idle_time{});
    return std::nullopt;
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    auto rank = static_cast<int>(i);
    auto& idle = idle_in_calls_[i];
    if (!suspected || meetings.call_of(rank).empty()
        || std::ranges::count(suspected->ranks, rank) == 0) {
      idle = {};
      continue;
    }
    // Vitals of threads are unknown: such ranks may wait until `hang_timeout`.
    auto vitals = limits_.in_process ? process_vitals{} : vitals_of(rank);
    idle.look(vitals, now, 2 * interval());
    all[i].is_idle = (!limits_.in_process && idle.get() >= call_patience)
                     || (limits_.hang && idle.get() >= *limits_.hang);
  }
  return suspected ? meetings.mismatch(all) : std::nullopt;
}

bool attempt_monitor::advance(moment::clock::time_point at) {
  auto progress = progress_of(seen(0), at);
  // Without another batch, the time left is a guess that only grows older.
  auto batch_of = [](const std::optional<epoch_progress>& x) {
    return x ? std::pair{x->epoch, x->batch} : std::pair{0ul, 0ul};
  };
  if (batch_of(progress) == batch_of(progress_))
    return false;
  progress_ = progress;
  return true;
}

hang_verdict attempt_monitor::judge(const rank_meetings& meetings,
                                    time_point now, time_point real) {
  auto since = std::exchange(last_check_, real).value_or(real);
  hangs_.checked_after(
    std::chrono::duration_cast<hang_monitor::duration>(real - since));
  return hangs_.check(
    waits(meetings), [&](int rank) { return look_at(rank, meetings, now); },
    now);
}

std::optional<process_vitals> attempt_monitor::vitals_of(int rank) const {
  auto result = seen(rank).vitals;
  if (result && have_gpus_[static_cast<std::size_t>(rank)])
    result->busy = true;
  return result;
}

rank_look attempt_monitor::look_at(int rank, const rank_meetings& meetings,
                                   time_point now) const {
  auto call = meetings.call_of(rank);
  rank_look result{place_of(seen(rank), call, now), vitals_of(rank)};
  // A loop in a call to the group waits for an answer; others may wait for it
  // in a pending collective. One that waits for another host is idle, too.
  if (result.vitals && !result.vitals->stopped
      && (!call.empty() || waits_for_data(seen_, rank)
          || waits_for_connections(seen_, rank)))
    result.vitals.reset();
  return result;
}

// -- reports

std::optional<std::string> attempt_monitor::stepped(const report_batch& batch) {
  for (std::size_t rank = 0; rank < seen_.size(); ++rank)
    hangs_.stepped(static_cast<int>(rank), batch.step_s[rank]);
  // In a loop with collectives all steps are as long as that of the slowest.
  auto own = batch.step_s;
  for (std::size_t rank = 0; rank < own.size(); ++rank) {
    auto waited = seen_[rank].waited;
    auto before = std::exchange(waited_[rank], waited);
    std::chrono::duration<double> here =
      rank_activity::clock::duration{waited - before};
    own[rank] = std::max(0.0, own[rank] - here.count());
  }
  return stragglers_.stepped(own);
}

void attempt_monitor::leave_out_standstill(report_batch& batch, time_point now,
                                           time_point real) const {
  using std::chrono::duration;
  auto waited = std::chrono::duration_cast<time_point::duration>(
    duration<double>{batch.wait_s});
  auto since_check = real - last_check_.value_or(real);
  auto stopped = hangs_.standstill(
    now - waited, now,
    std::chrono::duration_cast<hang_monitor::duration>(since_check));
  batch.wait_s =
    std::max(0.0, batch.wait_s - duration<double>{stopped}.count());
}

} // namespace troupe::internal
