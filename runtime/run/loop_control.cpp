#include "troupe/runtime/run/loop_control.hpp"

#include <utility>

namespace troupe::internal {

void loop_control::end(error reason) {
  std::lock_guard calling{calls_};
  {
    std::lock_guard guard{mutex_};
    if (ended_)
      return;
    reason_ = std::move(reason);
    ended_at_ = std::chrono::system_clock::now();
    ended_.store(true, std::memory_order_release);
  }
  for (auto& listener : listeners_)
    if (auto f = std::exchange(listener, nullptr))
      f(reason_);
}

void loop_control::preempt(troupe::stop_info info, std::uint64_t index) {
  std::lock_guard guard{mutex_};
  if (preempting_) {
    if (info.kind == stop_info::kind_type::finished
        || info_.kind == stop_info::kind_type::continues)
      info_ = std::move(info);
    else
      info_.deadline = info.deadline;
    return;
  }
  info_ = std::move(info);
  index_ = index;
  preempting_.store(true, std::memory_order_release);
}

void loop_control::reported(std::uint64_t index) noexcept {
  if (!preempting_.load(std::memory_order_acquire) || preempted_)
    return;
  std::lock_guard guard{mutex_};
  if (index >= index_)
    preempted_.store(true, std::memory_order_release);
}

std::optional<stop_info> loop_control::stop_info() const {
  std::lock_guard guard{mutex_};
  if (preempted_)
    return info_;
  if (!ended_)
    return std::nullopt;
  return troupe::stop_info{stop_info::kind_type::stopped, reason_.message,
                           ended_at_};
}

error loop_control::reason() const {
  std::lock_guard guard{mutex_};
  return reason_;
}

void loop_control::on_end(std::function<void(const error&)> f, listener who) {
  std::lock_guard calling{calls_};
  if (ended() && f)
    f(reason_); // The same from now on.
  else
    listeners_[static_cast<std::size_t>(who)].swap(f);
}

} // namespace troupe::internal
