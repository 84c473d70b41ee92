#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "troupe/runtime/metrics/packed_metrics.hpp"
#include "troupe/runtime/store/kept_result.hpp"
#include "troupe/runtime/values/run_status.hpp"

namespace troupe::internal {

/// Events per second over the last few seconds, or over the last few events if
/// these are rarer. The caller owns the clock.
class rate_meter {
public:
  using time_point = std::chrono::steady_clock::time_point;

  /// Time that the rate looks back.
  static constexpr auto window = std::chrono::seconds{5};

  explicit rate_meter(time_point start) : start_(start), last_{start} {}

  /// Events that make a rate.
  static constexpr std::size_t few = 8;

  /// *count* events happened at *now*. Time never goes back.
  void add(time_point now, std::uint64_t count = 1);

  /// Events per second. Over the window, or since the start if that is less; a
  /// window of fewer than `few` events is extended to the last `few` of them.
  double rate(time_point now) const;

private:
  static constexpr auto slot_length = std::chrono::milliseconds{250};
  static constexpr auto slots = std::size_t{window / slot_length};

  std::int64_t slot_of(time_point t) const {
    return (t - start_) / slot_length;
  }

  time_point start_;
  std::int64_t last_slot_ = 0;
  std::array<std::uint64_t, slots> counts_{};
  std::deque<time_point> last_; // of the last `few` events and the one before
};

/// What the driver publishes for those that wait for the run: the status, notes
/// in words, and finally the result. Reading it involves no actor.
class run_monitor {
public:
  /// Called on the driver's thread after a change that should be seen at once:
  /// a state, a note, the end. It must not call the monitor.
  using listener = std::function<void(run_state)>;

  /// Most notes that are kept until they are taken.
  static constexpr std::size_t max_notes = 1000;

  /// Publishes *x* with *last* as its last metrics.
  void show(run_status x, packed_metrics last = {});

  /// Adds *line*; beyond `max_notes` the oldest one is dropped.
  void note(std::string line);

  /// The result is known; callbacks may still be under way. Without effect once
  /// the run is over.
  void prepare(kept_result outcome) noexcept;

  /// The result that was prepared last.
  kept_result prepared() const;

  /// Whether a result was prepared.
  bool has_result() const;

  /// The run is over: waiting callers get the prepared result.
  void finish();

  run_status status() const;

  /// Notes since the last call, oldest first. The first one says how many were
  /// dropped, if any.
  std::vector<std::string> take_notes();

  /// Waits for the end.
  const kept_result& wait() const;

  bool is_over() const;

  void on_change(listener f);

private:
  void changed();

  mutable std::mutex mutex_;
  mutable std::condition_variable over_;
  run_status status_; // without its last metrics
  packed_metrics last_metrics_;
  std::deque<std::string> notes_;
  std::size_t notes_dropped_ = 0;
  kept_result result_;
  bool has_result_ = false;
  bool finished_ = false;
  listener listener_;
};

/// Calls *listener* at changes of *monitor* until it is destroyed.
class monitor_listener {
public:
  monitor_listener(run_monitor& monitor, run_monitor::listener listener)
    : monitor_(monitor) {
    monitor_.on_change(std::move(listener));
  }

  ~monitor_listener() { monitor_.on_change({}); }

  monitor_listener(const monitor_listener&) = delete;
  monitor_listener& operator=(const monitor_listener&) = delete;

private:
  run_monitor& monitor_;
};

} // namespace troupe::internal
