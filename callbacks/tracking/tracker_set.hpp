#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "troupe/callbacks/tracking/sink_thread.hpp"
#include "troupe/callbacks/tracking/tracker.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/store/run_description.hpp"
#include "troupe/runtime/values/run_status.hpp"

namespace troupe::internal {

using tracker_list = std::vector<std::shared_ptr<const tracker>>;

/// The trackers of a run at work.
class tracker_set {
public:
  struct listeners {
    /// Gets notes for the user. Called on any thread.
    std::function<void(std::string)> note;
    /// Returns the run's status; may be empty. Called on any thread.
    std::function<run_status()> status;
  };

  /// What `start` refuses, before the run has a folder: *run_path* need not
  /// exist, and *run* has no id that lasts.
  static expected<void> check(const tracker_list& trackers,
                              const run_description& run,
                              const fs::path& run_path);

  /// Checks each tracker, saves its options in `sinks/` of the run's folder
  /// *run_path* for `troupe sync`, and starts it. `ec::invalid_config`: one
  /// lacks what it needs, or two have the same name. A tracker that another run
  /// of this process still has gets a note and no records.
  static expected<std::unique_ptr<tracker_set>>
  start(const tracker_list& trackers, const run_description& run,
        const fs::path& run_path, listeners to);

  /// Call it when the journal has grown. Cheap; any thread may call.
  void notify() noexcept;

  /// Another driver has the run: leaves its folder alone from now on. Any
  /// thread may call.
  void abandon();

  /// After this long, a note names the trackers that the end of the run waits
  /// for.
  static constexpr auto silence = std::chrono::seconds{2};

  /// The time that trackers get even if no one waits: enough for the run's own
  /// files.
  static constexpr auto moment = std::chrono::seconds{1};

  /// Ends the run: waits for each tracker, at most its `finish_timeout` of
  /// *time*, and 2 s more for a call that does not return, whose thread is then
  /// left behind. Notes and returns what is unsent, one sentence per tracker,
  /// including those that got no records. Also returns, without a note, what
  /// was written to files instead of uploaded: the tracker has already noted
  /// that itself.
  ///
  /// While it waits it calls *hurried* on this thread. Once that is true,
  /// trackers get no more than `moment`.
  std::vector<std::string> finish(const std::function<bool()>& hurried = {},
                                  wait_time time = wait_time{});

  /// As if *hurried* of `finish` were true. Any thread may call.
  void hurry() noexcept { is_hurried_ = true; }

private:
  explicit tracker_set(listeners to) : to_(std::move(to)) {}

  expected<void> add(const tracker& x, std::shared_ptr<sink> target,
                     tracked_run run);

  /// Names the trackers that the end of the run waits for, after *waited*.
  void note_wait(wait_time::duration waited, bool may_be_hurried) const;

  listeners to_;
  std::atomic<bool> is_hurried_{false};
  std::vector<std::string> left_out_; // a sentence per tracker
  std::mutex mutex_; // held by `finish` while it changes the list
  std::vector<std::unique_ptr<sink_thread>> threads_;
};

} // namespace troupe::internal
