#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <caf/actor.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_behavior.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "troupe/actors/compat/event_loop.hpp"

namespace troupe::internal {

// -- a rank runs the event loop itself while it waits

/// How long the network thread leaves the event loop to threads that come and
/// go, before it looks at them again.
///
/// It takes the loop back once no one has gone for a whole pause, so that
/// back-to-back reports need no hand-over. The pauses of a stream of reports
/// grow: each look at them is a wake-up, on a core that a rank may want. Twice
/// the longest bounds the delay of messages that arrive while no one drives.
class loop_pauses {
public:
  static constexpr auto shortest = std::chrono::milliseconds{1};
  static constexpr auto longest = std::chrono::milliseconds{4};

  /// *moves* counts who has gone. Returns the next pause; nothing: no
  /// one has since the last look.
  std::optional<std::chrono::milliseconds> look(std::uint64_t moves) noexcept;

private:
  std::uint64_t seen_ = 0;
  std::chrono::milliseconds next_ = shortest;
};

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

  shared_loop loop_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool driving_ = false;      ///< Some thread runs the event loop.
  bool has_borrower_ = false; ///< Another thread runs it, or wants to.
  bool parked_ = false;       ///< Waits for the borrower to return the loop.
  bool ending_ = false;
  std::uint64_t moves_ = 0; ///< Times that a borrower returned the loop.
  std::thread thread_;
};

/// A mailbox for the calling thread, like `caf::scoped_actor`, which runs the
/// event loop itself while it waits without a limit.
class network_waiter {
public:
  /// Without a *network* the thread sleeps while it waits.
  network_waiter(caf::actor_system& system, network_thread* network);

  network_waiter(const network_waiter&) = delete;

  network_waiter& operator=(const network_waiter&) = delete;

  ~network_waiter();

  caf::blocking_actor* operator->() const noexcept { return self_; }
  caf::blocking_actor& operator*() const noexcept { return *self_; }

private:
  caf::actor handle_; // keeps it alive
  caf::blocking_actor* self_;
};

// -- actors that run on the event loop

/// An actor that runs on the thread that reads and writes all connections.
///
/// A message from another process, its handler and the answer then need no
/// thread switch. In return its handlers must not wait for anything, not even
/// for a disk: they would block all connections of the system.
template <class Base>
class network_thread_actor : public event_loop_actor<Base> {
public:
  using behavior_type = typename Base::behavior_type;
  using init_function = std::function<behavior_type(Base*)>;

  network_thread_actor(caf::actor_config& config, init_function init)
    : event_loop_actor<Base>(config), init_(std::move(init)) {}

protected:
  behavior_type make_behavior() override {
    return std::exchange(init_, nullptr)(this);
  }

private:
  init_function init_;
};

/// Spawns *behavior* with *args* as `system.spawn` does, on the network thread.
template <class... Signatures, class Base, class... Parameters, class... Args>
caf::typed_actor<Signatures...> spawn_on_network_thread(
  caf::actor_system& system,
  caf::typed_behavior<Signatures...> (*behavior)(Base*, Parameters...),
  Args&&... args) {
  static_assert(
    std::is_base_of_v<caf::typed_event_based_actor<Signatures...>, Base>);
  auto init = [behavior, ... xs = Parameters(std::forward<Args>(args))](
                Base* self) mutable {
    return behavior(self, std::move(xs)...);
  };
  caf::actor_config config{&system.middleman().backend()};
  return system.spawn_class<network_thread_actor<Base>, caf::no_spawn_options>(
    config, std::move(init));
}

} // namespace troupe::internal
