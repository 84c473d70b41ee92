#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <variant>

#include "troupe/actors/protocol/host_messages.hpp"
#include "troupe/runtime/process/process_vitals.hpp"

namespace troupe::internal {

/// Starts and ends the processes or threads of ranks. Calls never block;
/// listeners are called from any thread.
class rank_launcher {
public:
  /// What became of a launch.
  using event = std::variant<rank_launched, rank_launch_failed, rank_exited>;
  using listener = std::function<void(event)>;

  virtual ~rank_launcher() = default;

  /// The ranks of *x* will be launched. Fills in what the host decides about
  /// them: their cores.
  virtual void prepare(start_ranks&) {}

  /// Starts rank *rank* of *attempt*. *segment* is the descriptor of the
  /// attempt's shared segment or -1.
  virtual void launch(std::uint64_t attempt, int rank, int segment,
                      const listener& tell) = 0;

  /// Ends *rank* of the last attempt at once, if that is possible: threads can
  /// only be asked. A rank that does not exist yet is not started: its launch
  /// has failed.
  virtual void kill(int rank) = 0;

  /// Whether *rank* of the last attempt is a process that has ended, or ends by
  /// itself. Its `rank_exited` may still be pending: that comes once the cause
  /// is known, or cannot be known.
  virtual bool has_ended(int) { return false; }

  /// The activity of *rank* of the last attempt, if it is a process.
  virtual std::optional<process_vitals> vitals(int) { return std::nullopt; }

  /// Whether *rank* of the last attempt is a process that a signal has stopped:
  /// cheaper than `vitals`.
  virtual bool is_stopped(int) { return false; }

  /// Asks *rank* of the last attempt to write the stacks of its threads to its
  /// file among the logs. Returns whether it will.
  virtual bool show_stacks(int) { return false; }

  /// Waits, after the end of all ranks, until their output is written.
  virtual void drain() {}
};

} // namespace troupe::internal
