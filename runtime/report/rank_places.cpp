#include "troupe/runtime/report/rank_places.hpp"

#include <algorithm>

#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

using time_point = moment::clock::time_point;

/// A rank inside that is *stopped* keeps the others there.
collective_place collective_place_of(const rank_snapshot& x, bool stopped) {
  auto inside = x.in_collective.has_value();
  return {inside, x.in_collective.value_or(moment{}).time, x.collectives,
          x.is_behind || (inside && stopped)};
}

/// Collectives of NCCL run on GPUs, and a rank waits for its own before it
/// reports: a rank that neither does so nor has *ended* keeps the others there.
/// Or the GPU merely has much to do, which is not visible from outside.
collective_place gpu_place_of(const rank_snapshot& x, bool ended) {
  return {x.at_device.has_value(), x.at_device.value_or(moment{}).time,
          x.at_device || ended ? 1u : 0u};
}

start_place start_place_of(const rank_snapshot& x) {
  start_place result{x.came_to_start, std::nullopt};
  if (x.at_start)
    result.since = x.at_start->time;
  return result;
}

} // namespace

collective_calls collective_calls_of(const rank_snapshot& x) {
  auto failed = x.failed != collective_failure::none;
  return {x.called, failed ? 0 : x.awaited, x.collectives, x.reported,
          x.counts_calls};
}

bool asks_driver(const rank_snapshot& x) {
  return x.at_store || x.asks_driver;
}

bool has_left(const rank_snapshot& x) {
  return x.left_group && x.failed != collective_failure::others;
}

std::vector<int> late_in_collectives(const std::vector<rank_snapshot>& ranks,
                                     int rank) {
  auto entered = ranks[static_cast<std::size_t>(rank)].collectives;
  std::vector<int> result;
  for (auto& x : ranks)
    if (x.collectives < entered)
      result.push_back(x.rank);
  return result;
}

bool waits_for_data(const std::vector<rank_snapshot>& ranks, int rank) {
  auto& x = ranks[static_cast<std::size_t>(rank)];
  auto is_missing = [&x](const rank_snapshot& any) {
    return any.is_behind
           || (!any.in_collective && any.collectives < x.collectives);
  };
  return x.in_collective && std::ranges::none_of(ranks, is_missing);
}

bool waits_for_connections(const std::vector<rank_snapshot>& ranks, int rank) {
  auto came = [](const rank_snapshot& any) { return any.came_to_start; };
  return ranks[static_cast<std::size_t>(rank)].at_start
         && std::ranges::all_of(ranks, came);
}

std::optional<epoch_progress> progress_of(const rank_snapshot& x,
                                          time_point now) {
  auto& pass = x.pass;
  if (pass.taken < 2 || pass.taken > pass.batches)
    return std::nullopt;
  std::chrono::duration<double> so_far = now - pass.begun.time;
  auto done = pass.taken - 1;
  auto left = so_far.count() / static_cast<double>(done)
              * static_cast<double>(pass.batches - done);
  return epoch_progress{pass.epoch, done, pass.batches, std::max(left, 0.0)};
}

std::string place_of(const rank_snapshot& x, const std::string& call,
                     time_point now) {
  if (!call.empty())
    return "in " + call;
  auto here = [now](std::string_view place, const moment& since) {
    return concat(place, " for ", duration_text(now - since.time));
  };
  if (x.in_data_loader)
    return here("in its data loader", *x.in_data_loader);
  if (x.at_start)
    return here("at the start of the group", *x.at_start);
  if (x.at_store)
    return here("at the rendezvous store", *x.at_store);
  if (x.asks_driver)
    return here("waiting for the driver", *x.asks_driver);
  if (x.at_device)
    return here("waiting for its GPU", *x.at_device);
  if (x.in_collective)
    return here(concat("in collective ", x.collectives), *x.in_collective);
  return "in its train loop";
}

std::vector<rank_wait> waits_of(const rank_meetings& meetings,
                                const std::vector<rank_snapshot>& ranks,
                                const std::vector<loop_place>& loops) {
  auto result = meetings.waits();
  std::vector<collective_place> places;
  std::vector<collective_place> at_gpus;
  std::vector<start_place> starts;
  std::vector<int> elsewhere;
  std::vector<int> not_to_blame;
  std::vector<int> stopped;
  for (auto& x : ranks) {
    auto& loop = loops[static_cast<std::size_t>(x.rank)];
    places.push_back(collective_place_of(x, loop.stopped.has_value()));
    starts.push_back(start_place_of(x));
    at_gpus.push_back(gpu_place_of(x, loop.ended.has_value()));
    if (loop.stopped)
      stopped.push_back(x.rank);
    if (asks_driver(x))
      elsewhere.push_back(x.rank);
    if (x.at_device || asks_driver(x))
      not_to_blame.push_back(x.rank);
  }
  if (auto wait = collective_wait(places))
    result.push_back(std::move(*wait));
  // Other waits already name the same missing ranks.
  if (auto wait = collective_wait(at_gpus); wait && result.empty()) {
    wait->what = "work on the GPUs";
    result.push_back(std::move(*wait));
  }
  blame_awaited(result, not_to_blame, stopped);
  for (auto& x : ranks)
    if (!meetings.call_of(x.rank).empty())
      elsewhere.push_back(x.rank);
  if (auto wait = start_wait(starts, elsewhere))
    result.push_back(std::move(*wait));
  if (auto wait = end_wait(loops, elsewhere, result))
    result.push_back(std::move(*wait));
  return result;
}

} // namespace troupe::internal
