#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "troupe/callbacks/tracking/sink_feed.hpp"
#include "troupe/callbacks/tracking/tracker.hpp"
#include "troupe/runtime/run/callback_watchdog.hpp"

namespace troupe::internal {

/// Says who sends what *x* has not taken; begins with "they".
std::string who_sends_the_rest(const sink& x);

/// Runs a sink's feed on its own thread. During the run it has the lowest
/// priority: training comes first, the journal keeps what has to wait. At the
/// end a second thread of normal priority sends the rest.
class sink_thread {
public:
  using clock = std::chrono::steady_clock;

  /// How long a cancelled call of the sink may take to return. After that it is
  /// left behind with its threads.
  static constexpr auto cancel_timeout = std::chrono::seconds{2};

  /// How often `join` asks *given_up*.
  static constexpr auto look_interval = std::chrono::milliseconds{100};

  sink_thread(std::shared_ptr<sink> target, tracked_run run,
              tracker_options options, sink_feed::note_function note);

  /// Ends the threads; unsent records stay in the journal.
  ~sink_thread();

  sink_thread(const sink_thread&) = delete;
  sink_thread& operator=(const sink_thread&) = delete;

  /// Call it when the journal has grown. Cheap; any thread may call.
  void notify() noexcept;

  /// Call it once when nothing more comes: the rest is sent without pauses.
  /// *time* measures how long a tracker fails.
  void close(wait_time time = wait_time{});

  /// Another driver has the run's folder: nothing more is read, sent or
  /// written. `close` and `join` must still be called.
  void abandon();

  /// After `close`: waits until all is sent, until *time* reaches *limit*, or
  /// until *given_up*, asked every `look_interval`, returns true. Then ends the
  /// threads, or leaves them behind after `cancel_timeout`. Returns a sentence
  /// on what is unsent; empty: nothing. Gives up a failing tracker after its
  /// `failing_timeout`.
  std::string join(wait_time& time, wait_time::duration limit,
                   const std::function<bool()>& given_up = {});

  /// Whether nothing more will be sent.
  bool has_ended() const;

  const std::string& name() const noexcept { return name_; }

  /// After a `join` with nothing unsent: a sentence on what the tracker should
  /// upload but has in files only, as without an API key; empty: nothing.
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

} // namespace troupe::internal
