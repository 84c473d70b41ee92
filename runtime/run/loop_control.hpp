#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/values/run_context.hpp"

namespace troupe::internal {

/// Asks the loop of one rank, from another thread, to end because the run
/// stops or a peer has failed; or to leave by itself because the run is
/// preempted.
class loop_control {
public:
  /// Who is called when the loop is to end.
  enum class listener { data_plane, mailbox };

  /// Ends the loop for *reason*; only the first call counts.
  void end(error reason);

  /// Asks the loop to leave by itself once it has reported *index*. A later
  /// call changes only the deadline, unless the run is to finish, or was to
  /// continue.
  void preempt(stop_info info, std::uint64_t index);

  /// The loop's report *index* has returned.
  void reported(std::uint64_t index) noexcept;

  bool ended() const noexcept { return ended_.load(std::memory_order_acquire); }

  /// Whether the loop is to leave: it was ended, or it was preempted and has
  /// reached the index that all ranks leave after.
  bool stop_requested() const noexcept {
    return ended() || preempted_.load(std::memory_order_acquire);
  }

  /// Why, if `stop_requested()`.
  std::optional<troupe::stop_info> stop_info() const;

  /// Why; `ec::none` while the loop may run.
  error reason() const;

  /// Calls *f* once when the loop is to end, on the thread that ends it, or
  /// here and now if it has been ended. An empty function removes the last one
  /// of *who*; when this returns, no call is under way on another thread.
  ///
  /// *f* may run code of the user: it may call every function of this object.
  void on_end(std::function<void(const error&)> f,
              listener who = listener::data_plane);

private:
  std::atomic<bool> ended_{false};
  std::atomic<bool> preempted_{false};
  std::atomic<bool> preempting_{false}; ///< From `index_` on.

  /// Held during calls of listeners, and before `mutex_`. Recursive, because a
  /// listener may remove itself.
  std::recursive_mutex calls_;
  std::array<std::function<void(const error&)>, 2> listeners_;

  mutable std::mutex mutex_; ///< Not held during calls.
  error reason_;
  std::chrono::system_clock::time_point ended_at_;
  troupe::stop_info info_;
  std::uint64_t index_ = 0;
};

} // namespace troupe::internal
