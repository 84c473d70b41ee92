// How the WORKER GROUP watches its ranks: where each is, which waits for which,
// and which one hangs.

#include <algorithm>
#include <utility>

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/worker_group.hpp"
#include "troupe/runtime/process/shared_segment.hpp"
#include "troupe/runtime/process/stack_dump.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// When a rank came to *place*; nothing if it is not there.
std::optional<rank_activity::clock::time_point>
time_of(const std::atomic<rank_activity::clock::rep>& place) {
  auto since = place.load(std::memory_order_relaxed);
  if (since == 0)
    return std::nullopt;
  return rank_activity::clock::time_point{
    rank_activity::clock::duration{since}};
}

collective_place collective_place_of(const segment_rank& x) {
  auto since = time_of(x.activity.in_collective);
  // Bit 0 of the progress does not count steps.
  return {since.has_value(), since.value_or(rank_activity::clock::time_point{}),
          x.activity.collectives.load(std::memory_order_relaxed),
          x.progress.load(std::memory_order_relaxed) >> 1};
}

/// Collectives of NCCL run on GPUs, and a rank waits for its own before it
/// reports: a rank that neither does so nor has *ended* keeps the others there.
/// Or the GPU merely has much to do, which is not visible from outside.
collective_place gpu_place_of(const rank_activity& x, bool ended) {
  auto since = time_of(x.at_device);
  return {since.has_value(), since.value_or(rank_activity::clock::time_point{}),
          since || ended ? 1u : 0u};
}

/// Nothing before the first batch is done: there is no pace yet.
std::optional<epoch_progress> progress_of(const loader_pass& x) {
  auto batches = x.batches.load(std::memory_order_relaxed);
  auto taken = x.taken.load(std::memory_order_relaxed);
  if (taken < 2 || taken > batches)
    return std::nullopt;
  auto begun = rank_activity::clock::time_point{
    rank_activity::clock::duration{x.begun.load(std::memory_order_relaxed)}};
  std::chrono::duration<double> so_far = rank_activity::clock::now() - begun;
  auto done = taken - 1;
  auto left = so_far.count() / static_cast<double>(done)
              * static_cast<double>(batches - done);
  return epoch_progress{x.epoch.load(std::memory_order_relaxed), done, batches,
                        std::max(left, 0.0)};
}

} // namespace

void worker_group_state::watch_ranks() {
  self->run_delayed(attempt->monitor.interval(),
                    [this, number = attempt->number] {
                      if (!attempt || attempt->number != number)
                        return;
                      check_waits(); // The attempt may be over now.
                      if (attempt && !attempt->tracker.end_ordered())
                        watch_ranks();
                    });
}

void worker_group_state::watch_limit() {
  auto limit = args.plan.report_timeout;
  if (!limit || attempt->limit_timer)
    return;
  std::optional<clock::time_point> first;
  for (auto& wait : attempt->meetings.waits())
    first = std::min(first.value_or(wait.since), wait.since);
  if (!first)
    return;
  attempt->limit_timer = true;
  auto left = std::chrono::ceil<std::chrono::milliseconds>(
    *first + *limit - self->clock().now());
  if (left.count() <= 0) // The driver was stopped for a part of it.
    left = attempt->monitor.interval();
  self->run_delayed(left, [this, number = attempt->number] {
    if (!attempt || attempt->number != number)
      return;
    attempt->limit_timer = false;
    check_waits();
    if (attempt && !attempt->tracker.end_ordered())
      watch_limit();
  });
}

void worker_group_state::check_waits() {
  if (attempt->tracker.end_ordered())
    return;
  check_collectives();
  if (!attempt || attempt->tracker.end_ordered())
    return;
  show_progress();
  look_for_stopped();
  auto now = args.now();
  auto since = std::exchange(attempt->last_check, now).value_or(now);
  attempt->monitor.checked_after(
    std::chrono::duration_cast<hang_monitor::duration>(now - since));
  auto verdict = attempt->monitor.check(
    waits(), [this](int rank) { return look_at(rank); }, self->clock().now());
  std::string stacks;
  for (auto rank : verdict.show_stacks)
    if (args.launcher->show_stacks(rank))
      stacks += (stacks.empty() ? "" : ", ") + ("logs/" + stacks_name(rank));
  if (!stacks.empty())
    stacks = "; the stacks of its threads are in " + stacks;
  attempt->named_wait = attempt->monitor.has_named();
  for (auto& text : verdict.over)
    send(self, driver,
         attempt_warning{attempt->number, text, attempt->named_wait});
  for (auto& text : verdict.named)
    send(self, driver, attempt_warning{attempt->number, text + stacks, true});
  for (auto& [rank, why] : verdict.hung)
    attempt->tracker.timed_out(rank, why);
  if (!verdict.hung.empty())
    on_failure();
}

void worker_group_state::show_progress() {
  auto progress = progress_of(attempt->segment->activity(0).pass);
  // Without another batch, the time left is a guess that only grows older.
  auto batch_of = [](const std::optional<epoch_progress>& x) {
    return x ? std::pair{x->epoch, x->batch} : std::pair{0ul, 0ul};
  };
  if (batch_of(progress) == batch_of(attempt->progress))
    return;
  attempt->progress = progress;
  send(self, driver, epoch_advanced{attempt->number, progress});
}

void worker_group_state::look_for_stopped() {
  for (int rank = 0; rank < args.plan.world_size; ++rank) {
    auto& loop = attempt->loops[static_cast<std::size_t>(rank)];
    if (loop.ended || !args.launcher->is_stopped(rank))
      loop.stopped.reset();
    else if (!loop.stopped)
      loop.stopped = self->clock().now();
  }
}

std::vector<rank_wait> worker_group_state::waits() const {
  auto result = attempt->meetings.waits();
  std::vector<collective_place> places;
  std::vector<collective_place> at_gpus;
  std::vector<start_place> starts;
  std::vector<int> elsewhere;
  std::vector<int> not_to_blame;
  std::vector<int> stopped;
  for (int rank = 0; rank < args.plan.world_size; ++rank) {
    auto& shown = attempt->segment->activity(rank);
    places.push_back(collective_place_of(attempt->segment->rank(rank)));
    auto& loop = attempt->loops[static_cast<std::size_t>(rank)];
    if (loop.stopped)
      stopped.push_back(rank);
    starts.push_back(
      {shown.came_to_start.load() != 0, time_of(shown.at_start)});
    at_gpus.push_back(gpu_place_of(shown, loop.ended.has_value()));
    if (time_of(shown.at_store) || time_of(shown.asks_driver))
      elsewhere.push_back(rank);
    if (at_gpus.back().inside || std::ranges::count(elsewhere, rank) > 0)
      not_to_blame.push_back(rank);
  }
  if (auto wait = collective_wait(places))
    result.push_back(std::move(*wait));
  // Other waits already name the same missing ranks.
  if (auto wait = collective_wait(at_gpus); wait && result.empty()) {
    wait->what = "work on the GPUs";
    result.push_back(std::move(*wait));
  }
  blame_awaited(result, not_to_blame, stopped);
  for (int rank = 0; rank < args.plan.world_size; ++rank)
    if (!attempt->meetings.call_of(rank).empty())
      elsewhere.push_back(rank);
  if (auto wait = start_wait(starts, elsewhere))
    result.push_back(std::move(*wait));
  if (auto wait = end_wait(attempt->loops, elsewhere, result))
    result.push_back(std::move(*wait));
  return result;
}

std::vector<int> worker_group_state::late_in_collectives(int rank) const {
  auto entered = [this](int x) {
    return attempt->segment->activity(x).collectives.load();
  };
  std::vector<int> result;
  for (int other = 0; other < args.plan.world_size; ++other)
    if (entered(other) < entered(rank))
      result.push_back(other);
  return result;
}

bool worker_group_state::is_in_call(int rank) const {
  auto& shown = attempt->segment->activity(rank);
  return !attempt->meetings.call_of(rank).empty() || time_of(shown.at_store)
         || time_of(shown.asks_driver);
}

std::string worker_group_state::place_of(int rank) const {
  if (auto call = attempt->meetings.call_of(rank); !call.empty())
    return "in " + call;
  auto& shown = attempt->segment->activity(rank);
  auto entered = shown.collectives.load(std::memory_order_relaxed);
  auto now = self->clock().now();
  if (auto since = time_of(shown.in_data_loader))
    return "in its data loader for " + wait_text(now - *since);
  if (auto since = time_of(shown.at_start))
    return "at the start of the group for " + wait_text(now - *since);
  if (auto since = time_of(shown.at_store))
    return "at the rendezvous store for " + wait_text(now - *since);
  if (auto since = time_of(shown.asks_driver))
    return "waiting for the driver for " + wait_text(now - *since);
  if (auto since = time_of(shown.at_device))
    return "waiting for its GPU for " + wait_text(now - *since);
  if (auto since = time_of(shown.in_collective))
    return concat("in collective ", entered, " for ", wait_text(now - *since));
  return "in its train loop";
}

std::optional<process_vitals> worker_group_state::vitals_of(int rank) const {
  auto result = args.launcher->vitals(rank);
  if (result && !facts_of(rank).gpus.empty())
    result->busy = true;
  return result;
}

rank_look worker_group_state::look_at(int rank) const {
  rank_look result{place_of(rank), vitals_of(rank)};
  // A loop in a call to the group waits for an answer; others may wait for it
  // in a pending collective.
  if (result.vitals && !result.vitals->stopped
      && !attempt->meetings.call_of(rank).empty())
    result.vitals.reset();
  return result;
}

} // namespace troupe::internal
