#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include "troupe/callbacks/tracking/sink_feed.hpp"
#include "troupe/callbacks/tracking/tracker_options.hpp"

namespace troupe {

/// A sink's feed on a thread of its own. While the run goes on it has the
/// lowest priority: training comes first, the journal keeps what has to wait.
/// What is left at the end is sent by a second thread, which does not starve.
class sink_thread {
public:
  using clock = std::chrono::steady_clock;

  sink_thread(std::shared_ptr<sink> target, tracked_run run,
              tracker_options options, sink_feed::note_function note);

  /// Ends the threads; what is unsent stays in the journal.
  ~sink_thread();

  sink_thread(const sink_thread&) = delete;
  sink_thread& operator=(const sink_thread&) = delete;

  /// The journal has grown. Cheap; any thread may call.
  void notify() noexcept;

  /// Nothing more comes: what is left is sent without a pause. Call it once.
  void close();

  /// The run's folder is not ours any more: nothing further is read, sent or
  /// written. `close` and `join` are still due.
  void abandon();

  /// After `close`: waits until all is sent, at most until *deadline*, and ends
  /// the threads. Empty, or a sentence that says what is unsent. A tracker that
  /// fails is given up after its `failing_timeout`.
  std::string join(clock::time_point deadline);

  const tracker_options& options() const noexcept { return options_; }

  std::string name() const { return feed_.target().name(); }

private:
  std::optional<clock::time_point> pump() noexcept;

  /// Sends what comes, until `close`; then waits for `send_rest`: programs that
  /// a sink started may end with the thread that started them.
  void follow();
  void send_rest();
  void send_rest(std::unique_lock<std::mutex>& lock);

  /// Waits until there is something to do; *next* is when a retry is due.
  void wait(std::optional<clock::time_point> next);

  tracker_options options_;
  std::stop_source cancel_;
  sink_feed feed_; // of `follow`, once that has left it of `send_rest`
  std::atomic<bool> news_ = true;
  bool waits_for_more_ = false; // of `follow`: not for the first record
  std::mutex mutex_;            // guards what follows
  std::condition_variable changed_;
  bool closed_ = false;  // nothing more comes
  bool left_ = false;    // `follow` has left the feed
  bool alone_ = false;   // there is no second thread
  bool stopped_ = false; // no one waits any longer
  bool ended_ = false;   // `send_rest` has left the feed
  std::thread follower_;
  std::thread sender_;
};

} // namespace troupe
