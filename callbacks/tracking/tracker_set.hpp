#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "troupe/callbacks/tracking/sink_thread.hpp"
#include "troupe/callbacks/tracking/tracker.hpp"
#include "troupe/runtime/config/run_config.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/run/run_description.hpp"
#include "troupe/runtime/run/run_status.hpp"

namespace troupe {

/// The trackers of a run: those among its callbacks, and the ones that every
/// run has.
class tracker_set {
public:
  struct listeners {
    /// Hears what people should know. Any thread.
    std::function<void(std::string)> note;
    /// How the run is; may be empty. Any thread.
    std::function<run_status()> status;
  };

  /// Checks every tracker, notes its options in `sinks/` of the run's folder
  /// *run_path* for `troupe-sync`, and starts it. `ec::invalid_config`: one
  /// lacks what it needs, or two have the same name. One that another run of
  /// this process still has gets nothing, which is noted.
  static expected<std::unique_ptr<tracker_set>>
  start(const run_config& config, const run_description& run,
        const fs::path& run_path, listeners to);

  /// The journal has grown. Cheap; any thread may call.
  void notify() noexcept;

  /// Another driver has the run: its folder is left alone from now on. Any
  /// thread.
  void abandon();

  /// How long the end of the run waits in silence. Then those that it waits for
  /// are noted.
  static constexpr auto silence = std::chrono::seconds{2};

  /// What trackers have even if no one waits for them: files of the run are
  /// written by then.
  static constexpr auto moment = std::chrono::seconds{1};

  /// The run is over: waits for each tracker, at most its `finish_timeout` of
  /// *time*, and 2 s more for a call that does not return: its thread is left
  /// behind. What is unsent then is noted and returned, a sentence per tracker,
  /// also for those that got nothing, and for those that have in files what
  /// they were to upload, which they said themselves.
  ///
  /// *hurried* is asked now and then, on this thread, while it waits. Once it
  /// is true they have no more than `moment`.
  std::vector<std::string> finish(const std::function<bool()>& hurried = {},
                                  wait_time time = wait_time{});

private:
  explicit tracker_set(listeners to) : to_(std::move(to)) {}

  expected<void> add(const tracker& x, std::shared_ptr<sink> target,
                     tracked_run run);

  /// Says for whom the end of the run waits, which has done so for *waited*.
  void note_wait(wait_time::duration waited, bool may_be_hurried) const;

  listeners to_;
  std::vector<std::string> left_out_; // a sentence per tracker
  std::mutex mutex_; // only `finish` changes the list, and holds it then
  std::vector<std::unique_ptr<sink_thread>> threads_;
};

/// The callbacks that are to be told what happens: all but trackers.
std::vector<std::shared_ptr<user_callback>>
told_callbacks(const std::vector<std::shared_ptr<user_callback>>& callbacks);

} // namespace troupe
