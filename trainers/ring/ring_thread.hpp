#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "troupe/trainers/ring/host_ring.hpp"

namespace troupe::internal {

/// Runs the jobs of a ring on a thread of its own, so that its hosts reduce
/// the next chunk meanwhile.
class ring_thread {
public:
  explicit ring_thread(host_ring& ring) : ring_(ring) {}

  /// The ring must have been aborted if jobs may be open.
  ~ring_thread();

  ring_thread(const ring_thread&) = delete;
  ring_thread& operator=(const ring_thread&) = delete;

  /// The thread works until job *last* is done. `ec::spawn` without a thread.
  expected<void> start(host_ring::ticket last);

  /// Waits for job *last*, which was started; fails as `host_ring::run`.
  expected<void> wait(host_ring::ticket last);

private:
  void work();

  host_ring& ring_;
  std::mutex mutex_;
  std::condition_variable changed_;
  host_ring::ticket wanted_ = 0;
  host_ring::ticket done_ = 0;
  error failure_;
  bool stopping_ = false;
  std::thread thread_;
};

} // namespace troupe::internal
