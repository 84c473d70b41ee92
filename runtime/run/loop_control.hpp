#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "troupe/runtime/error.hpp"

namespace troupe {

/// Tells the loop of one rank, from another thread, that it is to end: the run
/// is to stop or a peer has failed.
class loop_control {
public:
  /// Ends the loop for *reason*; only the first call counts.
  void end(error reason);

  bool ended() const noexcept { return ended_.load(std::memory_order_acquire); }

  /// Why; `ec::none` while the loop may run.
  error reason() const;

  /// Waits for the end, at most *limit*; whether the loop is to end.
  bool wait_for_end(std::chrono::milliseconds limit) const;

  /// Calls *f* once when the loop is to end, on the thread that ends it, or
  /// here and now if it has been ended. An empty function takes the last one
  /// back; none is under way then any more.
  void on_end(std::function<void(const error&)> f);

private:
  std::atomic<bool> ended_{false};
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  error reason_;
  std::function<void(const error&)> listener_;
};

} // namespace troupe
