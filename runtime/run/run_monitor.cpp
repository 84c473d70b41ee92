#include "troupe/runtime/run/run_monitor.hpp"

#include <algorithm>
#include <utility>

#include "troupe/runtime/text.hpp"

namespace troupe::internal {

void rate_meter::add(time_point now, std::uint64_t count) {
  auto slot = slot_of(now);
  if (slot - last_slot_ >= static_cast<std::int64_t>(slots))
    counts_.fill(0);
  else
    for (auto i = last_slot_ + 1; i <= slot; ++i)
      counts_[static_cast<std::size_t>(i) % slots] = 0;
  last_slot_ = slot;
  counts_[static_cast<std::size_t>(slot) % slots] += count;
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(count, few); ++i)
    last_.push_back(now);
  while (last_.size() > few + 1)
    last_.pop_front();
}

double rate_meter::rate(time_point now) const {
  using seconds = std::chrono::duration<double>;
  auto slot = slot_of(now);
  std::uint64_t events = 0;
  for (auto i = std::max<std::int64_t>(0, slot - std::int64_t{slots} + 1);
       i <= last_slot_; ++i)
    events += counts_[static_cast<std::size_t>(i) % slots];
  if (auto known = last_.size() - 1; events < few && known > 0) {
    auto span = std::max<seconds>(now - last_.front(), slot_length);
    return static_cast<double>(known) / span.count();
  }
  // The current slot is only partly over: look back to the start of the oldest.
  auto begin =
    std::max(start_, start_ + slot_length * (slot - std::int64_t{slots} + 1));
  auto span = std::max<seconds>(now - begin, slot_length);
  return static_cast<double>(events) / span.count();
}

void run_monitor::show(run_status x, packed_metrics last) {
  std::lock_guard guard{mutex_};
  auto state_changed = status_.state != x.state;
  status_ = std::move(x);
  last_metrics_ = std::move(last);
  if (state_changed)
    changed();
}

void run_monitor::note(std::string line) {
  std::lock_guard guard{mutex_};
  notes_.push_back(std::move(line));
  if (notes_.size() > max_notes) {
    notes_.pop_front();
    ++notes_dropped_;
  }
  changed();
}

void run_monitor::prepare(kept_result outcome) noexcept {
  std::lock_guard guard{mutex_};
  if (finished_) // It is being read.
    return;
  result_ = std::move(outcome);
  has_result_ = true;
}

kept_result run_monitor::prepared() const {
  std::lock_guard guard{mutex_};
  return result_;
}

bool run_monitor::has_result() const {
  std::lock_guard guard{mutex_};
  return has_result_;
}

void run_monitor::finish() {
  std::lock_guard guard{mutex_};
  finished_ = true;
  over_.notify_all();
  changed();
}

run_status run_monitor::status() const {
  std::unique_lock guard{mutex_};
  auto result = status_;
  auto last = last_metrics_;
  guard.unlock();
  if (!last.empty())
    result.last_metrics = last.unpacked();
  return result;
}

std::vector<std::string> run_monitor::take_notes() {
  std::lock_guard guard{mutex_};
  std::vector<std::string> result;
  if (auto gone = std::exchange(notes_dropped_, 0); gone > 0)
    result.push_back(concat(gone, " older notes were dropped"));
  for (auto& line : std::exchange(notes_, {}))
    result.push_back(std::move(line));
  return result;
}

const kept_result& run_monitor::wait() const {
  std::unique_lock guard{mutex_};
  over_.wait(guard, [this] { return finished_; });
  return result_; // Never changes once it is there.
}

bool run_monitor::is_over() const {
  std::lock_guard guard{mutex_};
  return finished_;
}

void run_monitor::on_change(listener f) {
  std::lock_guard guard{mutex_};
  listener_ = std::move(f);
}

void run_monitor::changed() {
  if (listener_)
    listener_(status_.state);
}

} // namespace troupe::internal
