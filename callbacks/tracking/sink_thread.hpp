#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "troupe/callbacks/tracking/sink_feed.hpp"
#include "troupe/callbacks/tracking/tracker_options.hpp"
#include "troupe/runtime/run/wait_time.hpp"

namespace troupe {

/// A sink's feed on a thread of its own. While the run goes on it has the
/// lowest priority: training comes first, the journal keeps what has to wait.
/// What is left at the end is sent by a second thread, which does not starve.
class sink_thread {
public:
  using clock = std::chrono::steady_clock;

  /// How long a call of the sink may take to return once it was cancelled. One
  /// that takes longer is left behind with its threads.
  static constexpr auto cancel_timeout = std::chrono::seconds{2};

  /// How soon its owner hears that no one waits any longer.
  static constexpr auto look_interval = std::chrono::milliseconds{100};

  sink_thread(std::shared_ptr<sink> target, tracked_run run,
              tracker_options options, sink_feed::note_function note);

  /// Ends the threads; what is unsent stays in the journal.
  ~sink_thread();

  sink_thread(const sink_thread&) = delete;
  sink_thread& operator=(const sink_thread&) = delete;

  /// The journal has grown. Cheap; any thread may call.
  void notify() noexcept;

  /// Nothing more comes: what is left is sent without a pause. Call it once.
  /// *time* measures for how long a tracker fails.
  void close(wait_time time = wait_time{});

  /// The run's folder is not ours any more: nothing further is read, sent or
  /// written. `close` and `join` are still due.
  void abandon();

  /// After `close`: waits until all is sent, at most until *time* has come to
  /// *limit* or *given_up*, which is asked every `look_interval`, says so. Then
  /// ends the threads, or leaves them behind `cancel_timeout` later. Empty, or
  /// a sentence that says what is unsent. A tracker that fails is given up
  /// after its `failing_timeout`.
  std::string join(wait_time& time, wait_time::duration limit,
                   const std::function<bool()>& given_up = {});

  /// Whether nothing more will be sent.
  bool has_ended() const;

  const std::string& name() const noexcept { return name_; }

  /// After a `join` with nothing unsent: empty, or a sentence that says what
  /// the tracker was to upload and has in files only, as for lack of a key.
  std::string left_in_files() const;

  const tracker_options& options() const noexcept { return options_; }

private:
  struct state;

  tracker_options options_;
  std::string name_;
  std::shared_ptr<state> state_;
  std::thread follower_;
  std::thread sender_;
};

} // namespace troupe
