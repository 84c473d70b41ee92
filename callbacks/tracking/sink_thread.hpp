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

/// A sink's feed on a thread of its own, of the lowest priority: training comes
/// first, the journal keeps what has to wait.
class sink_thread {
public:
  using clock = std::chrono::steady_clock;

  sink_thread(std::shared_ptr<sink> target, tracked_run run,
              tracker_options options, sink_feed::note_function note);

  /// Ends the thread; what is unsent stays in the journal.
  ~sink_thread();

  sink_thread(const sink_thread&) = delete;
  sink_thread& operator=(const sink_thread&) = delete;

  /// The journal has grown. Cheap; any thread may call.
  void notify() noexcept;

  /// Nothing more comes: what is left is sent without a pause.
  void close();

  /// After `close`: waits until all is sent, at most until *deadline*, and ends
  /// the thread. Empty, or a sentence that says what is unsent.
  std::string join(clock::time_point deadline);

  const tracker_options& options() const noexcept { return options_; }

private:
  void run();
  /// Waits until there is something to do; *next* is when a retry is due.
  void wait(std::optional<clock::time_point> next);

  tracker_options options_;
  std::stop_source cancel_;
  sink_feed feed_; // the thread's own until it has ended
  std::atomic<bool> news_ = true;
  std::mutex mutex_; // guards what follows
  std::condition_variable changed_;
  bool closed_ = false;
  bool stopped_ = false;
  bool ended_ = false;
  std::thread thread_;
};

} // namespace troupe
