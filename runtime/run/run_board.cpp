#include "troupe/runtime/run/run_board.hpp"

#include <utility>

namespace troupe {

void run_board::show(run_status x, std::shared_ptr<const metrics> last) {
  std::lock_guard guard{mutex_};
  auto state_changed = status_.state != x.state;
  status_ = std::move(x);
  last_metrics_ = std::move(last);
  if (state_changed)
    changed();
}

void run_board::note(std::string line) {
  std::lock_guard guard{mutex_};
  notes_.push_back(std::move(line));
  if (notes_.size() > max_notes) {
    notes_.pop_front();
    ++notes_gone_;
  }
  changed();
}

void run_board::prepare(result outcome) {
  std::lock_guard guard{mutex_};
  result_ = std::move(outcome);
}

result run_board::prepared() const {
  std::lock_guard guard{mutex_};
  return result_;
}

void run_board::finish() {
  std::lock_guard guard{mutex_};
  finished_ = true;
  over_.notify_all();
  changed();
}

run_status run_board::status() const {
  std::unique_lock guard{mutex_};
  auto result = status_;
  auto last = last_metrics_;
  guard.unlock();
  if (last)
    result.last_metrics = *last;
  return result;
}

std::vector<std::string> run_board::take_notes() {
  std::lock_guard guard{mutex_};
  std::vector<std::string> result;
  if (auto gone = std::exchange(notes_gone_, 0); gone > 0)
    result.push_back(std::to_string(gone) + " older notes were not taken");
  for (auto& line : std::exchange(notes_, {}))
    result.push_back(std::move(line));
  return result;
}

const result& run_board::wait() const {
  std::unique_lock guard{mutex_};
  over_.wait(guard, [this] { return finished_; });
  return result_; // Never changes once it is there.
}

std::optional<result> run_board::outcome() const {
  std::lock_guard guard{mutex_};
  return finished_ ? std::optional{result_} : std::nullopt;
}

bool run_board::is_over() const {
  std::lock_guard guard{mutex_};
  return finished_;
}

void run_board::on_change(listener f) {
  std::lock_guard guard{mutex_};
  listener_ = std::move(f);
}

void run_board::changed() {
  if (listener_)
    listener_(status_.state);
}

} // namespace troupe
