#pragma once

#include <utility>

#include <caf/actor_config.hpp>
#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/blocking_actor.hpp>
#include <caf/config.hpp>
#include <caf/io/middleman.hpp>
#include <caf/mailbox_element.hpp>

#if CAF_MAJOR_VERSION >= 1
#include <future>
#include <thread>

#include <caf/scheduler.hpp>
#else
#include <caf/execution_unit.hpp>
#endif

// What CAF 0.18 and 1.x name differently about the threads that run actors.
// Beside `messaging.hpp` because CAF's network module takes long to compile.
namespace troupe::internal {

#if CAF_MAJOR_VERSION >= 1
using execution_unit = caf::scheduler;
#else
using execution_unit = caf::execution_unit;
#endif

/// Where an actor with the config *x* runs; null: on the scheduler.
inline execution_unit* loop_of(const caf::actor_config& x) {
#if CAF_MAJOR_VERSION >= 1
  return x.sched;
#else
  return x.host;
#endif
}

/// An actor that only the event loop of its *config* runs.
template <class Base>
class event_loop_actor : public Base {
public:
  explicit event_loop_actor(caf::actor_config& config)
    : Base(config), loop_(loop_of(config)) {}

  using Base::enqueue;

  bool enqueue(caf::mailbox_element_ptr x, execution_unit*) override {
    return Base::enqueue(std::move(x), loop_);
  }

  /// Makes CAF's event loop run this actor itself instead of passing it to the
  /// scheduler.
#if CAF_MAJOR_VERSION >= 1
  caf::resumable::subtype_t subtype() const noexcept override {
#else
  caf::resumable::subtype_t subtype() const override {
#endif
    return caf::resumable::io_actor;
  }

private:
  execution_unit* loop_;
};

/// A mailbox without a thread: the one that made it receives the messages.
class mailbox_actor : public caf::blocking_actor {
public:
  using blocking_actor::blocking_actor;

  void act() override {}

  void launch(execution_unit*, bool, bool) override {
    register_at_system();
    initialize();
  }

  bool has_messages() {
#if CAF_MAJOR_VERSION >= 1
    return !mailbox().empty();
#else
    return !mailbox().queue().empty() || mailbox().fetch_more();
#endif
  }
};

/// Loads CAF's network module. With CAF 0.18, its event loop runs all messages
/// that a socket's data sets off before it asks the kernel for more: without a
/// system call between them, and without one to wake itself.
void load_network(caf::actor_system_config& config);

/// The event loop of an actor system whose `system_config` asked for no network
/// thread. Any thread may run it, one at a time.
class shared_loop {
public:
  /// Makes a system with *config* one for this class.
  static void prepare(caf::actor_system_config& config);

  /// *system* must outlive this.
  explicit shared_loop(caf::actor_system& system);

  shared_loop(const shared_loop&) = delete;

  shared_loop& operator=(const shared_loop&) = delete;

  /// No thread may be in `run_once`.
  ~shared_loop();

  /// Waits for an event and handles it.
  void run_once() { loop_.run_once(); }

  /// Ends the wait of the thread in `run_once`. Any thread.
  void wake() {
    loop_.post([] {});
  }

private:
  caf::io::network::multiplexer& loop_;
#if CAF_MAJOR_VERSION >= 1
  std::thread::id owner_;
  std::promise<void> given_back_;
#endif
};

} // namespace troupe::internal
