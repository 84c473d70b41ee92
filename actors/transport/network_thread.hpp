#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include <caf/actor_system.hpp>

namespace troupe {

/// Runs the event loop of an actor system whose `system_config` asked for no
/// network thread, and lets a thread that waits for an answer run it instead,
/// so that no other thread has to wake up.
class network_thread {
public:
  /// *system* must outlive this.
  explicit network_thread(caf::actor_system& system);

  network_thread(const network_thread&) = delete;

  network_thread& operator=(const network_thread&) = delete;

  ~network_thread();

  /// Waits until *done* and runs the event loop on the calling thread if
  /// possible. Other threads that make *done* true must call `wake`. For one
  /// thread at a time.
  void drive_until(const std::function<bool()>& done);

  /// Makes `drive_until` check *done* again, which another thread has changed.
  void wake();

private:
  void run();
  /// One round of the event loop, which waits for something to happen.
  void drive(std::unique_lock<std::mutex>& lock);

  caf::actor_system& system_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool driving_ = false; ///< Some thread runs the event loop.
  bool guest_ = false;   ///< Another thread runs it, or wants to.
  bool parked_ = false; ///< This thread waits for the guest to return the loop.
  bool ending_ = false;
  std::uint64_t visits_ = 0;
  std::thread thread_;
};

} // namespace troupe
