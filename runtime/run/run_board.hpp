#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/run/result.hpp"
#include "troupe/runtime/run/run_status.hpp"

namespace troupe {

/// What the driver of a run shows to whoever waits for it: the status, notes
/// for people, and in the end the result. Reading it asks no actor.
class run_board {
public:
  /// Called on the driver's thread after a change that should be seen at once:
  /// a state, a note, the end. It must not ask the board.
  using listener = std::function<void(run_state)>;

  /// Notes that are kept for someone who does not take them.
  static constexpr std::size_t max_notes = 1000;

  /// Shows *x* with *last*, which it shares, as its last metrics.
  void show(run_status x, std::shared_ptr<const metrics> last = nullptr);

  /// Adds *line*; beyond `max_notes` the oldest one goes.
  void note(std::string line);

  /// The result is known; callbacks may still be under way.
  void prepare(result outcome);

  /// The result that was prepared last.
  result prepared() const;

  /// The run is over: whoever waits gets the prepared result.
  void finish();

  run_status status() const;

  /// Notes since the last call, oldest first. The first one says how many have
  /// gone, if any.
  std::vector<std::string> take_notes();

  /// Waits for the end.
  const result& wait() const;

  /// The result once the run is over.
  std::optional<result> outcome() const;

  bool is_over() const;

  void on_change(listener f);

private:
  void changed();

  mutable std::mutex mutex_;
  mutable std::condition_variable over_;
  run_status status_; // without its last metrics
  std::shared_ptr<const metrics> last_metrics_;
  std::deque<std::string> notes_;
  std::size_t notes_gone_ = 0;
  result result_;
  bool finished_ = false;
  listener listener_;
};

} // namespace troupe
