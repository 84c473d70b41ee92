#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "troupe/actors/protocol/interfaces.hpp"
#include "troupe/actors/thread_launcher.hpp"
#include "troupe/actors/transport/private_endpoint.hpp"
#include "troupe/callbacks/tracking/tracker_set.hpp"
#include "troupe/runtime/process/log_follower.hpp"
#include "troupe/runtime/report/report.hpp"
#include "troupe/runtime/run/run_monitor.hpp"
#include "troupe/runtime/store/callback_cursor.hpp"
#include "troupe/runtime/store/result.hpp"
#include "troupe/runtime/store/run_store.hpp"
#include "troupe/runtime/values/run_control.hpp"
#include "troupe/trainers/agent_launcher.hpp"
#include "troupe/trainers/host_door.hpp"
#include "troupe/trainers/retired_contexts.hpp"
#include "troupe/trainers/run_handle.hpp"
#include "troupe/trainers/run_request.hpp"

namespace troupe::internal {

class lent_thread;
class network_thread;

/// What the caller provides for a run besides the request.
struct run_surroundings {
  /// Gets what rank 0 prints, if that is a process.
  std::function<void(std::string_view)> console;
  /// The start fails with `ec::stopped` once this is true. Called on the thread
  /// that starts the run, and only until the run has started.
  std::function<bool()> given_up;
  /// How a run ends that was given up for this reason. Called on that thread;
  /// unset: its folder does not say that it has ended.
  std::function<result(error)> end_of_given_up;
  /// The run is a trial, which a sweep resumes or not: what it says of its end
  /// promises nothing.
  bool is_trial = false;
  /// Asked about each report once it is stored, on the thread of the driver,
  /// which must not wait: why the run has trained enough, if it has.
  std::function<std::optional<std::string>(const report_batch&)> enough;
  /// Runs the loop of a run without workers; unset: a separate thread does.
  std::shared_ptr<lent_thread> thread;
  /// The network thread of the actor system, which only the lent thread may
  /// use. Unset if the system has none of this kind.
  network_thread* network = nullptr;
};

/// What leads agents that come by themselves to a run: mpirun, the port of
/// `TROUPE_DRIVER`, or the file of a ticket. One run of this process has it at
/// a time, because agents do not know which one they are to join.
class agent_way {
public:
  /// Takes what *name* begins a sentence about, such as "the agents of mpirun
  /// serve". `ec::conflict` if another run has it.
  static expected<agent_way> take(std::string name);

  agent_way(agent_way&& other) noexcept
    : name_(std::exchange(other.name_, {})) {}
  ~agent_way();

private:
  explicit agent_way(std::string name) noexcept : name_(std::move(name)) {}

  std::string name_; ///< Empty: it was moved from.
};

/// Tells actors that a run is closed, from a thread that waits for it.
class closing_notice {
public:
  closing_notice() = default;
  closing_notice(const closing_notice&) = delete;
  closing_notice& operator=(const closing_notice&) = delete;
  ~closing_notice() { let_go(); }

  /// Sends *message* to *who* once *await*, which the first call starts on a
  /// thread, has returned.
  expected<void> tell(run_closed_actor who, run_closed message,
                      std::function<void()> await);

  /// Waits for the thread, but not on itself: an actor whose last handle the
  /// thread had may own the run. Then it ends without what *await* refers to.
  void let_go() noexcept;

private:
  struct shared {
    std::mutex mutex;
    bool is_closed = false;
    std::vector<run_closed_actor> waiting;
  };

  static void serve(shared& x, const run_closed& message) noexcept;

  std::shared_ptr<shared> shared_ = std::make_shared<shared>();
  std::thread thread_; ///< Guarded by the mutex until `let_go`.
};

/// All that lives as long as the run; the last member goes first.
struct run_parts {
  // The agent, and with it the launcher, may live as long as the actor system;
  // the endpoint must not.
  ~run_parts() {
    closing.let_go();
    order_receiver::connect(control, {});
    end_hosts();
    endpoint->reset();
    if (threads)
      threads->forget();
  }

  /// Waits for the end, for the ranks' output and for trackers, and gives up
  /// the run's folder and its port; see `run_handle::wait`.
  void await_end(const std::function<bool()>& hurried) noexcept;

  /// Makes the endpoint through which ranks that are processes reach their
  /// host's agent, and lets in the agents of other hosts.
  expected<void> open_endpoint(caf::actor_system& system);

  std::shared_ptr<run_store> store;
  std::shared_ptr<run_monitor> monitor = std::make_shared<run_monitor>();
  std::shared_ptr<tracker_set> trackers;
  std::shared_ptr<rank_launcher> launcher;
  std::shared_ptr<thread_launcher> threads; ///< The launcher, if it is this.
  /// Where its launcher finds the way to the agent, which comes later.
  std::shared_ptr<std::optional<private_endpoint>> endpoint =
    std::make_shared<std::optional<private_endpoint>>();
  std::optional<private_endpoint> agents; ///< Where agents reach the group.
  /// Unset: there is one host, or the run is over.
  std::unique_ptr<host_door> door;
  std::vector<agent_way> ways; ///< To the door.
  fs::path agent_ticket;
  bool publishes_ticket = false; ///< For the other processes of mpirun.
  std::shared_ptr<agent_launcher> launches; ///< Of agents on other hosts.
  /// Shows the output of rank 0, which is on another host.
  std::optional<log_follower> rank_zero;
  std::shared_ptr<retired_contexts> contexts =
    std::make_shared<retired_contexts>();
  std::shared_ptr<std::atomic<bool>> callbacks_left_behind =
    std::make_shared<std::atomic<bool>>(false);
  /// Guards the next three.
  std::mutex waiting;
  std::condition_variable closed;
  /// Whether a caller of `await_end` ends the run's rest, or has done so.
  enum class rest : std::uint8_t { open, ending, ended };
  rest state = rest::open;
  /// By trackers and to callbacks, once the run is over.
  std::vector<std::string> unsent;
  std::shared_ptr<callback_cursor> cursor; ///< Until the run is over.
  /// Leads to the driver; copies are with callbacks.
  run_control control{run_control::receiver{}};
  driver_actor driver;
  worker_group_actor group;
  host_agent_actor agent; ///< Of this host.
  /// Where ranks' threads find the agent, which comes after their launcher.
  std::shared_ptr<host_agent_actor> agent_cell =
    std::make_shared<host_agent_actor>();
  closing_notice closing;

private:
  void end_rest(const std::function<bool()>& hurried) noexcept;

  /// Lets the agents of other hosts leave, and closes the way to them.
  void end_hosts() noexcept;
};

/// What Troupe's own parts do with a run, and programs do not.
class run_access {
public:
  /// Starts *request* in *system*, which must load CAF's middleman and outlive
  /// the handle. A run without workers has one rank on a separate thread,
  /// unless *around* lends one. Never throws.
  static expected<run_handle> start(prepared_request request,
                                    caf::actor_system& system,
                                    run_surroundings around = {}) noexcept;

  explicit run_access(const run_handle& x) noexcept : parts_(*x.parts_) {}

  /// The driver's status, notes and result; subscribe with on_change().
  run_monitor& monitor() const noexcept { return *parts_.monitor; }

private:
  run_parts& parts_;
};

} // namespace troupe::internal
