#include "troupe/runtime/run/loop_control.hpp"

#include <utility>

namespace troupe {

void loop_control::end(error reason) {
  std::lock_guard guard{mutex_};
  if (ended_)
    return;
  reason_ = std::move(reason);
  ended_.store(true, std::memory_order_release);
  changed_.notify_all();
  if (auto f = std::exchange(listener_, nullptr))
    f(reason_);
}

error loop_control::reason() const {
  std::lock_guard guard{mutex_};
  return reason_;
}

bool loop_control::wait_for_end(std::chrono::milliseconds limit) const {
  std::unique_lock guard{mutex_};
  return changed_.wait_for(guard, limit, [this] { return ended(); });
}

void loop_control::on_end(std::function<void(const error&)> f) {
  std::lock_guard guard{mutex_};
  if (ended_ && f)
    f(reason_);
  else
    listener_ = std::move(f);
}

} // namespace troupe
