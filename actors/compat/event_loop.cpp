#include "troupe/actors/compat/event_loop.hpp"

#if CAF_MAJOR_VERSION < 1
#include <cstddef>
#include <mutex>
#include <thread>
#include <vector>

#include <caf/io/network/default_multiplexer.hpp>
#include <caf/resumable.hpp>
#include <caf/scheduler/abstract_coordinator.hpp>
#endif

namespace troupe::internal {

#if CAF_MAJOR_VERSION >= 1

void load_network(caf::actor_system_config& config) {
  config.load<caf::io::middleman>();
}

void shared_loop::prepare(caf::actor_system_config&) {}

// CAF 1.x always runs its event loop on a thread of its own. That thread is
// parked inside a task of the loop. The task is posted from another one, so
// that it runs between two rounds of the loop: no event is being handled then.
shared_loop::shared_loop(caf::actor_system& system)
  : loop_(system.middleman().backend()), owner_(loop_.thread_id()) {
  std::promise<void> parked;
  loop_.post([this, &parked] {
    loop_.post([this, &parked] {
      auto end = given_back_.get_future();
      parked.set_value();
      end.wait();
    });
  });
  parked.get_future().wait();
  // Messages of all threads go through the event loop's pipe: CAF assumes that
  // the same thread always runs the loop.
  loop_.thread_id({});
}

shared_loop::~shared_loop() {
  loop_.thread_id(owner_);
  given_back_.set_value();
}

#else

namespace {

/// Ends the wait of an event loop, and does nothing else.
class wake_up final : public caf::resumable {
public:
  subtype_t subtype() const override { return function_object; }

  resume_result resume(caf::execution_unit*, std::size_t) override {
    return done;
  }

  // It lives as long as the process.
  void intrusive_ptr_add_ref_impl() override {}

  void intrusive_ptr_release_impl() override {}
};

/// CAF's event loop with a queue instead of its pipe. CAF polls the sockets
/// between any two messages, and writes to its own pipe when another thread
/// than the one that made it runs it.
class queued_loop final : public caf::io::network::default_multiplexer {
public:
  using default_multiplexer::default_multiplexer;

  ~queued_loop() override {
    while (take_queue()) { // Actors that end send messages.
      for (auto x : running_)
        caf::scheduler::abstract_coordinator::cleanup_and_release(x);
      running_.clear();
    }
  }

  void exec_later(caf::resumable* x) override {
    if (x->subtype() != caf::resumable::io_actor
        && x->subtype() != caf::resumable::function_object)
      return default_multiplexer::exec_later(x);
    std::unique_lock lock{mutex_};
    queue_.push_back(x);
    if (!sleeping_ || runner_ == std::this_thread::get_id())
      return;
    sleeping_ = false;
    lock.unlock();
    static wake_up signal;
    default_multiplexer::exec_later(&signal); // through the pipe
  }

  bool try_run_once() override { return round(false); }

  void run_once() override { round(true); }

  void run() override {
    while (num_socket_handlers() > 0)
      round(true);
  }

private:
  /// Runs what is queued; without that, handles the sockets and what they set
  /// off. Returns whether there was anything.
  bool round(bool wait) {
    // Threads that never stop to post must not keep the sockets waiting.
    constexpr int max_rounds_without_poll = 16;
    auto busy = run_queue();
    if (busy && ++rounds_without_poll_ < max_rounds_without_poll)
      return true;
    rounds_without_poll_ = 0;
    busy |= poll_once(may_sleep(wait && !busy));
    {
      std::lock_guard guard{mutex_};
      sleeping_ = false;
    }
    return busy | run_queue();
  }

  bool may_sleep(bool wanted) {
    std::lock_guard guard{mutex_};
    runner_ = std::this_thread::get_id();
    sleeping_ = wanted && queue_.empty();
    return sleeping_;
  }

  /// Runs what is queued, and what that queues, up to a limit.
  bool run_queue() {
    constexpr int max_sweeps = 64;
    auto busy = false;
    for (int i = 0; i < max_sweeps && take_queue(); ++i) {
      busy = true;
      for (auto x : running_)
        resume({x, false});
      running_.clear();
      handle_internal_events();
    }
    return busy;
  }

  bool take_queue() {
    std::lock_guard guard{mutex_};
    running_.swap(queue_);
    return !running_.empty();
  }

  std::mutex mutex_; // of the next three
  std::vector<caf::resumable*> queue_;
  bool sleeping_ = false;  ///< Waits, or will wait, for a socket.
  std::thread::id runner_; ///< Polls, or was the last to.
  std::vector<caf::resumable*> running_;
  int rounds_without_poll_ = 0;
};

} // namespace

void load_network(caf::actor_system_config& config) {
  config.load<caf::io::middleman, queued_loop>();
}

void shared_loop::prepare(caf::actor_system_config& config) {
  config.set("caf.middleman.manual-multiplexing", true);
}

shared_loop::shared_loop(caf::actor_system& system)
  : loop_(system.middleman().backend()) {
  // Messages of all threads go through the event loop's pipe: CAF assumes that
  // the thread which made the system always runs the loop.
  loop_.thread_id({});
}

shared_loop::~shared_loop() = default;

#endif

} // namespace troupe::internal
