#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <caf/actor_system.hpp>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/process/interrupt_watch.hpp"
#include "troupe/runtime/report/report.hpp"
#include "troupe/runtime/run/signal_orders.hpp"
#include "troupe/runtime/store/result.hpp"
#include "troupe/runtime/sweep/trial.hpp"
#include "troupe/trainers/run_handle.hpp"
#include "troupe/trainers/run_request.hpp"

namespace troupe::internal {

/// A trial under way: a thread of its own starts the run and waits for its end,
/// which both take time. All calls come from the sweep's thread.
class trial_thread {
public:
  /// What a trial's thread calls.
  struct surroundings {
    caf::actor_system* system = nullptr;
    /// As `run_surroundings::enough`.
    std::function<std::optional<std::string>(const report_batch&)> enough;
    /// What signals have asked of the sweep so far; on the driver's thread,
    /// too.
    std::function<signals_seen()> signals;
    std::function<void()> ended; ///< Called when `has_ended` becomes true.
  };

  /// *x* has the seconds that it ran in earlier starts. `ec::spawn`: there is
  /// no thread.
  static expected<std::unique_ptr<trial_thread>>
  start(trial x, run_request request, surroundings around);

  /// Stops the run and waits for its end.
  ~trial_thread();

  trial_thread(const trial_thread&) = delete;
  trial_thread& operator=(const trial_thread&) = delete;

  const trial& content() const noexcept { return content_; }

  /// The trial as it is now.
  trial snapshot() const;

  /// What the run has to say and has not said yet.
  std::vector<std::string> take_notes();

  void ask_to_end(interrupt how);

  bool has_ended() const;

  /// The trial, which has ended. Nothing: it was asked to, and the next start
  /// of the sweep resumes it. An error: its run could not start, or its storage
  /// failed, as a full disk does; the next start resumes that, too.
  expected<std::optional<trial>> take_end();

  /// How many threads that use the actor system the run left behind.
  int threads_left() const;

private:
  trial_thread(trial x, surroundings around)
    : content_(std::move(x)), around_(std::move(around)) {}

  void serve(const run_request& request) noexcept;
  expected<result> run(const run_request& request);
  std::shared_ptr<run_handle> handle() const;
  double seconds() const;
  /// Passes *how* on if the run has started. Guarded by the caller.
  void pass_on(interrupt how);
  bool was_asked() const noexcept { return orders_.last() != interrupt::none; }

  trial content_;
  surroundings around_;
  std::chrono::steady_clock::time_point begin_ =
    std::chrono::steady_clock::now();
  mutable std::mutex mutex_;           // guards what follows
  end_orders orders_;                  // to the run, which may not have begun
  std::shared_ptr<run_handle> handle_; // unset: not started yet
  std::optional<expected<result>> outcome_;
  std::thread thread_; // the sweep's thread only
};

} // namespace troupe::internal
