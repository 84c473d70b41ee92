#include "troupe/runtime/report/rank_barrier.hpp"

#include <utility>

namespace troupe {

rank_barrier::rank_barrier(int world_size)
  : ranks_(static_cast<std::size_t>(world_size)) {}

expected<std::optional<barrier_release>> rank_barrier::arrive(barrier_arrival x,
                                                              time_point now) {
  if (auto ok = admit(x); !ok)
    return tl::unexpected{ok.error()};
  ranks_[static_cast<std::size_t>(x.rank)].here = x.kind;
  if (arrived_++ == 0)
    since_ = now;
  if (x.rank == 0 && x.kind == meeting_kind::broadcast)
    release_ = {std::move(x.payload), std::move(x.refusal)};
  if (auto ok = check_kinds(); !ok)
    return tl::unexpected{ok.error()};
  if (auto ok = check_ended(); !ok)
    return tl::unexpected{ok.error()};
  if (static_cast<std::size_t>(arrived_) < ranks_.size())
    return std::nullopt;
  if (release_.refusal)
    release_.refusal.message = "rank 0 refused broadcast "
                               + std::to_string(next_) + ": "
                               + release_.refusal.message;
  for (auto& rank : ranks_)
    rank.here.reset();
  arrived_ = 0;
  ++next_;
  return std::exchange(release_, {});
}

expected<void> rank_barrier::loop_ended(int rank) {
  if (!is_rank(rank))
    return failure(ec::protocol, "there is no " + rank_name(rank) + " among "
                                   + std::to_string(ranks_.size()));
  ranks_[static_cast<std::size_t>(rank)].ended = true;
  return check_ended();
}

std::vector<int> rank_barrier::ended() const {
  std::vector<int> result;
  for (std::size_t i = 0; i < ranks_.size(); ++i)
    if (ranks_[i].ended)
      result.push_back(static_cast<int>(i));
  return result;
}

std::optional<rank_wait> rank_barrier::waiting() const {
  if (arrived_ == 0)
    return std::nullopt;
  rank_wait result{.what = call_name(), .since = since_};
  for (std::size_t i = 0; i < ranks_.size(); ++i)
    (ranks_[i].here ? result.waiting : result.missing)
      .push_back(static_cast<int>(i));
  return result;
}

std::string rank_barrier::call_name() const {
  for (auto& x : ranks_)
    if (x.here)
      return std::string{to_string(*x.here)} + " " + std::to_string(next_)
             + (release_.refusal
                  ? " (which rank 0 refused: " + release_.refusal.message + ")"
                  : "");
  return {};
}

expected<void> rank_barrier::admit(const barrier_arrival& x) const {
  if (!is_rank(x.rank))
    return failure(ec::protocol, "there is no " + rank_name(x.rank) + " among "
                                   + std::to_string(ranks_.size()));
  auto& slot = ranks_[static_cast<std::size_t>(x.rank)];
  if (slot.ended || slot.here || x.sequence != next_)
    return failure(
      ec::protocol,
      rank_name(x.rank) + " joins " + std::string{to_string(x.kind)} + " "
        + std::to_string(x.sequence)
        + (slot.ended  ? " after its loop ended"
           : slot.here ? " while it waits in " + std::to_string(next_)
                       : " instead of " + std::to_string(next_)));
  return {};
}

bool rank_barrier::is_rank(int rank) const noexcept {
  return rank >= 0 && static_cast<std::size_t>(rank) < ranks_.size();
}

std::vector<int> rank_barrier::ranks_here(meeting_kind kind) const {
  std::vector<int> result;
  for (std::size_t i = 0; i < ranks_.size(); ++i)
    if (ranks_[i].here == kind)
      result.push_back(static_cast<int>(i));
  return result;
}

expected<void> rank_barrier::check_kinds() const {
  auto in_barrier = ranks_here(meeting_kind::barrier);
  auto in_broadcast = ranks_here(meeting_kind::broadcast);
  if (in_barrier.empty() || in_broadcast.empty())
    return {};
  return failure(ec::conflict,
                 "the ranks meet in different calls: " + rank_list(in_barrier)
                   + " in barrier " + std::to_string(next_) + ", "
                   + rank_list(in_broadcast) + " in broadcast "
                   + std::to_string(next_));
}

expected<void> rank_barrier::check_ended() const {
  auto wait = waiting();
  if (!wait)
    return {};
  std::vector<int> ended;
  for (auto rank : wait->missing)
    if (ranks_[static_cast<std::size_t>(rank)].ended)
      ended.push_back(rank);
  if (ended.empty())
    return {};
  return failure(
    ec::rank_failed,
    rank_list(ended)
      + (ended.size() == 1 ? " ended its loop" : " ended their loops") + ", "
      + rank_list(wait->waiting)
      + (wait->waiting.size() == 1 ? " waits" : " wait") + " in " + wait->what);
}

} // namespace troupe
