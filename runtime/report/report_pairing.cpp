#include "troupe/runtime/report/report_pairing.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "troupe/runtime/counted.hpp"
#include "troupe/runtime/report/report.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

report_pairing::report_pairing(int world_size, std::uint64_t first_index)
  : ranks_(static_cast<std::size_t>(world_size)), first_(first_index),
    next_(first_index) {}

expected<std::optional<report_batch>> report_pairing::add(rank_report x,
                                                          time_point now) {
  TROUPE_TRY_VOID(admit(x));
  auto& queue = ranks_[static_cast<std::size_t>(x.rank)];
  ++queue.sent;
  queue.pending.push_back({std::move(x), now});
  TROUPE_TRY_VOID(check_ended());
  if (std::ranges::any_of(ranks_, [](auto& r) { return r.pending.empty(); }))
    return std::nullopt;
  auto batch = release(now);
  TROUPE_TRY_VOID(check_parts(batch));
  return batch;
}

expected<void> report_pairing::loop_ended(int rank) {
  TROUPE_TRY_VOID(check_rank(rank, ranks_.size()));
  ranks_[static_cast<std::size_t>(rank)].ended = true;
  return check_ended();
}

std::uint64_t report_pairing::reports_of(int rank) const {
  auto i = static_cast<std::size_t>(rank);
  return i < ranks_.size() ? ranks_[i].sent : 0;
}

expected<void> report_pairing::admit(const rank_report& x) const {
  TROUPE_TRY_VOID(check_rank(x.rank, ranks_.size()));
  auto& queue = ranks_[static_cast<std::size_t>(x.rank)];
  if (queue.ended)
    return failure(ec::protocol, concat(rank_name(x.rank), " sent report ",
                                        x.index, " after its loop ended"));
  if (x.index != first_ + queue.sent)
    return failure(ec::protocol,
                   concat(rank_name(x.rank), " sent report ", x.index,
                          " instead of ", first_ + queue.sent));
  // One more than without barrier: the report with a barrier after them.
  if (queue.pending.size() > static_cast<std::size_t>(max_reports_ahead))
    return failure(ec::protocol, rank_name(x.rank) + " is more than "
                                   + counted(max_reports_ahead, "report")
                                   + " ahead of the slowest rank");
  return {};
}

expected<void> report_pairing::check_ended() const {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (!ranks_[i].ended)
      continue;
    // Everything that waits for the first report that this rank never sent.
    auto lacking = first_ + ranks_[i].sent;
    std::vector<int> waiting;
    for (std::size_t j = 0; j < ranks_.size(); ++j)
      if (ranks_[j].sent > ranks_[i].sent)
        waiting.push_back(static_cast<int>(j));
    if (!waiting.empty())
      return failure(
        ec::rank_failed,
        concat(rank_name(static_cast<int>(i)), " ended its loop after ",
               counted(ranks_[i].sent, "report"), ", ", rank_list(waiting),
               (waiting.size() == 1 ? " waits" : " wait"), " with report ",
               lacking));
  }
  return {};
}

report_batch report_pairing::release(time_point now) {
  report_batch batch{.index = next_++};
  auto since = now;
  for (auto& queue : ranks_) {
    auto& [report, at] = queue.pending.front();
    since = std::min(since, at);
    batch.step_s.push_back(report.step_s);
    batch.values.push_back(std::move(report.values));
    batch.parts.push_back(std::move(report.part));
    if (batch.stop_request.empty())
      batch.stop_request = std::move(report.stop_request);
    queue.pending.pop_front();
  }
  batch.wait_s =
    std::chrono::duration<double>(now - std::max(since, last_release_)).count();
  last_release_ = now;
  return batch;
}

} // namespace troupe::internal
