#include "troupe/actors/transport/network_thread.hpp"

#include <algorithm>

#include <caf/actor.hpp>

namespace troupe::internal {

namespace {

class waiting_actor : public mailbox_actor {
public:
  waiting_actor(caf::actor_config& config, network_thread* network)
    : mailbox_actor(config), network_(network) {}

  const char* name() const override { return "network-waiter"; }

  using mailbox_actor::enqueue;

  /// Actors of other threads than the event loop's may answer, too.
  bool enqueue(caf::mailbox_element_ptr x, execution_unit* from) override {
    auto accepted = mailbox_actor::enqueue(std::move(x), from);
    if (network_ && from != &home_system().middleman().backend())
      network_->wake();
    return accepted;
  }

  void await_data() override {
    if (!network_)
      return mailbox_actor::await_data();
    network_->drive_until([this] { return has_messages(); });
  }

private:
  network_thread* network_;
};

} // namespace

std::optional<std::chrono::milliseconds>
loop_pauses::look(std::uint64_t moves) noexcept {
  if (std::exchange(seen_, moves) != moves)
    return std::exchange(next_, std::min(2 * next_, longest));
  next_ = shortest;
  return std::nullopt;
}

network_thread::network_thread(caf::actor_system& system) : loop_(system) {
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
  loop_.wake();
}

void network_thread::drive_until(const std::function<bool()>& done) {
  std::unique_lock lock{mutex_};
  if (done())
    return; // A thread that does not drive gets no pause.
  has_borrower_ = true;
  while (!done()) {
    if (driving_)
      changed_.wait(lock);
    else
      drive(lock);
  }
  has_borrower_ = false;
  ++moves_;
  if (parked_)
    changed_.notify_all();
}

void network_thread::drive(std::unique_lock<std::mutex>& lock) {
  driving_ = true;
  lock.unlock();
  loop_.run_once();
  lock.lock();
  driving_ = false;
}

void network_thread::run() {
  std::unique_lock lock{mutex_};
  loop_pauses pauses;
  while (!ending_) {
    if (auto pause = pauses.look(moves_)) {
      changed_.wait_for(lock, *pause, [this] { return ending_; });
    } else if (has_borrower_) {
      // For long: the thread that returns the loop wakes this one.
      parked_ = true;
      changed_.wait(lock, [this] { return !has_borrower_ || ending_; });
      parked_ = false;
    } else {
      drive(lock);
      changed_.notify_all(); // A borrower may have waited for the loop.
    }
  }
}

network_waiter::network_waiter(caf::actor_system& system,
                               network_thread* network)
  : handle_(system.spawn<waiting_actor>(network)) {
  self_ = static_cast<caf::blocking_actor*>(
    caf::actor_cast<caf::abstract_actor*>(handle_));
}

network_waiter::~network_waiter() {
  self_->cleanup(caf::exit_reason::normal, nullptr);
}

} // namespace troupe::internal
