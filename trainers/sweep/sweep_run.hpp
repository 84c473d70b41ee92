#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <caf/actor_system.hpp>

#include "troupe/actors/protocol/sweep_messages.hpp"
#include "troupe/callbacks/sweep_console.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/interrupt_watch.hpp"
#include "troupe/runtime/run/signal_orders.hpp"
#include "troupe/runtime/sweep/sweep_ledger.hpp"
#include "troupe/runtime/sweep/sweep_store.hpp"
#include "troupe/runtime/sweep/trial_judge.hpp"
#include "troupe/trainers/sweep/sweep_plan.hpp"
#include "troupe/trainers/sweep/trial_thread.hpp"

namespace troupe::internal {

/// One start of a sweep: keeps as many trials under way as may be, until none
/// is left or it is asked to end. All decisions are made on the thread that
/// calls `run`. Any thread may call `request_end`, `follow` and `status`.
class sweep_run {
public:
  /// Both references must outlive the run.
  sweep_run(const sweep_plan& plan, sweep_result& outcome);
  ~sweep_run();

  sweep_run(const sweep_run&) = delete;
  sweep_run& operator=(const sweep_run&) = delete;

  /// Takes the sweep's folder, and what earlier starts left there.
  expected<void> open();

  /// Runs all trials. An error ends the sweep once those under way have ended.
  /// Then the folder is given up. *signals* may be null.
  void run(caf::actor_system& system, interrupt_watch* signals) noexcept;

  /// Asks the sweep to end, because of *why*, as a signal does.
  void request_end(interrupt how, std::string why);

  /// From now on *who* learns of trials that end, and of the end.
  void follow(sweep_observer_actor who);

  /// How the sweep was when it last waited.
  sweep_status status() const;

  /// How many threads use the actor system and cannot be ended.
  int threads_left() const noexcept { return threads_left_; }

  sweep_console& console() noexcept { return console_; }

private:
  using clock_type = std::chrono::steady_clock;

  void run_all();
  void heed_requests();
  interrupt by_signal() const;
  interrupt asked() const;
  error why_asked() const;
  void note_end_of_start() noexcept;
  /// Most trials at once while the next one runs: fewer than there may be if
  /// no more are left.
  int with_next() const;
  expected<void> begin_trials();
  expected<bool> begin_next();
  expected<bool> resume(trial x);
  expected<bool> begin_or_refuse(trial x);
  expected<void> begin(trial x, run_request request);
  void end_trials();
  expected<void> end(trial_thread& x);
  expected<void> note_end(trial x);
  void ask_to_end(interrupt how);
  void wait();
  void show();
  void show_notes(trial_thread& x);
  void fail(error reason);
  sweep_status look() const;
  void remember(sweep_status x);
  void give_up_folder() noexcept;
  void tell_end() noexcept;

  const sweep_plan& plan_;
  sweep_result& outcome_;
  sweep_console console_;
  std::size_t at_once_ = 0; ///< Most trials under way.
  std::unique_ptr<sweep_store> store_;
  std::optional<sweep_ledger> ledger_;
  std::shared_ptr<trial_judge> judge_; // of runs that hang, too
  int threads_left_ = 0;
  clock_type::time_point begin_ = clock_type::now();
  caf::actor_system* system_ = nullptr;
  interrupt_watch* signals_ = nullptr;
  clock_type::time_point next_look_; // for a request of `troupe stop`
  end_orders orders_;                // to the trials
  wake_event wake_; // readable: a trial has ended, or the sweep is to
  std::vector<std::unique_ptr<trial_thread>> active_;
  mutable std::mutex mutex_;              // guards what follows
  interrupt requested_ = interrupt::none; // by others than signals
  std::string why_requested_;
  sweep_status seen_;
  std::vector<sweep_observer_actor> followers_;
  bool is_over_ = false;
};

} // namespace troupe::internal
