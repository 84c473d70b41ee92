#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "troupe/runtime/error.hpp"

namespace troupe {

/// Calls a function once a second on a thread of its own, so that it waits
/// behind nothing: neither a commit nor a loop that does not report.
class sync_thread {
public:
  /// From one begin to the next; a call that takes longer is followed at once.
  static constexpr auto interval = std::chrono::seconds{1};

  sync_thread() = default;
  sync_thread(const sync_thread&) = delete;
  sync_thread& operator=(const sync_thread&) = delete;

  /// Waits for a call under way.
  ~sync_thread() { stop(); }

  /// Begins to call *act*; the first false ends it, and what it throws counts
  /// as true. `ec::spawn` if the system has no thread left. One that was
  /// stopped may start again; one that was ended does not.
  expected<void> start(std::function<bool()> act);

  /// No call is under way or comes any more. Any thread but its own may call.
  void stop();

  /// The same, for good.
  void end();

private:
  void run(const std::function<bool()>& act);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  bool ended_ = false;
  std::mutex join_mutex_; // guards what follows
  std::thread thread_;
};

} // namespace troupe
