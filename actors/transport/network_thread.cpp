#include "troupe/actors/transport/network_thread.hpp"

#include <chrono>

#include <caf/io/middleman.hpp>

namespace troupe {

namespace {

/// After a rank's thread returns the event loop, this thread waits that long
/// before running it again, so that back-to-back reports need no hand-over. It
/// bounds the delay of incoming messages.
constexpr auto grace = std::chrono::milliseconds{1};

} // namespace

network_thread::network_thread(caf::actor_system& system) : system_(system) {
  // Messages of all threads go through the event loop's pipe: CAF assumes that
  // the thread which made the system always runs the loop.
  system.middleman().backend().thread_id({});
  thread_ = std::thread{[this] { run(); }};
}

network_thread::~network_thread() {
  {
    std::lock_guard guard{mutex_};
    ending_ = true;
  }
  changed_.notify_all();
  wake();
  thread_.join();
}

void network_thread::wake() {
  system_.middleman().backend().post([] {}); // Ends its wait for an event.
}

void network_thread::drive_until(const std::function<bool()>& done) {
  std::unique_lock lock{mutex_};
  guest_ = true;
  while (!done()) {
    if (driving_)
      changed_.wait(lock);
    else
      drive(lock);
  }
  guest_ = false;
  ++visits_;
  if (parked_)
    changed_.notify_all();
}

void network_thread::drive(std::unique_lock<std::mutex>& lock) {
  driving_ = true;
  lock.unlock();
  system_.middleman().backend().run_once();
  lock.lock();
  driving_ = false;
}

void network_thread::run() {
  std::unique_lock lock{mutex_};
  std::uint64_t seen = 0;
  while (!ending_) {
    if (guest_) {
      changed_.notify_all();
      parked_ = true;
      changed_.wait(lock, [this] { return !guest_ || ending_; });
      parked_ = false;
    } else if (visits_ != seen) {
      seen = visits_;
      changed_.wait_for(lock, grace, [this] { return ending_; });
    } else {
      drive(lock);
    }
  }
}

} // namespace troupe
