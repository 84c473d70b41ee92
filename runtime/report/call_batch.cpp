#include "troupe/runtime/report/call_batch.hpp"

#include <algorithm>
#include <limits>

namespace troupe::internal {

call_batch::call_batch(int ranks, std::uint64_t first_report, bool holds,
                       int reports_ahead)
  : ranks_(static_cast<std::size_t>(ranks)), first_(first_report),
    answered_(first_report), ahead_(static_cast<std::uint64_t>(reports_ahead)),
    holds_(holds) {}

bool call_batch::report(int rank, std::uint64_t index, bool waits) {
  auto& x = at(rank);
  if (index != first_ + x.sent)
    return true;
  auto before = common();
  ++x.sent;
  if (waits)
    block(x, index);
  else if (index >= first_ + ahead_)
    block(x, index - ahead_);
  return common() > before || is_due();
}

bool call_batch::await_reports(int rank) {
  if (auto& x = at(rank); x.sent > 0)
    block(x, first_ + x.sent - 1);
  return is_due();
}

bool call_batch::arrive(int rank, std::uint64_t sequence, meeting_kind kind) {
  auto& x = at(rank);
  if (x.meeting || x.is_over || sequence != next_meeting_)
    return true;
  x.meeting = kind;
  return is_due();
}

void call_batch::answered(std::uint64_t index) {
  answered_ = std::max(answered_, index + 1);
  for (auto& x : ranks_)
    if (x.report && *x.report <= index)
      x.report.reset();
}

void call_batch::released() {
  ++next_meeting_;
  for (auto& x : ranks_)
    x.meeting.reset();
}

void call_batch::block(rank_slot& x, std::uint64_t report) {
  if (report >= answered_)
    x.report = report;
}

std::uint64_t call_batch::common() const {
  auto result = std::numeric_limits<std::uint64_t>::max();
  for (auto& x : ranks_)
    if (!x.is_over)
      result = std::min(result, x.sent);
  return result;
}

bool call_batch::is_due() const {
  if (!holds_)
    return true;
  auto in_report = false;
  auto in_barrier = false;
  auto in_broadcast = false;
  auto all_block = true;
  auto any_over = false;
  for (auto& x : ranks_) {
    if (!x.is_up)
      return true;
    in_report = in_report || x.report;
    in_barrier = in_barrier || x.meeting == meeting_kind::barrier;
    in_broadcast = in_broadcast || x.meeting == meeting_kind::broadcast;
    all_block = all_block && (x.is_over || x.report || x.meeting);
    any_over = any_over || x.is_over;
  }
  auto kinds = in_report + in_barrier + in_broadcast;
  return all_block || kinds > 1 || (kinds > 0 && any_over);
}

} // namespace troupe::internal
