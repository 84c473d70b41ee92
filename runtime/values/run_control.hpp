#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "troupe/runtime/each_field.hpp"

namespace troupe {

// What a program may ask of a run under way. The structs are messages, too:
// `run_control_actor` takes them. A run has three ends, each with one verb:
// finish, preempt, abort. The last of several does not undo the first.

/// Ends the run as aborted, with time for its ranks to leave.
struct abort_run {
  std::string reason; ///< Empty: it was asked to.
};

TROUPE_INSPECT(abort_run, reason)

/// Gives the ranks *grace_ms* (negative: as long as the run's config says) to
/// leave their loops, and ends the run as preempted.
struct preempt_run {
  std::string reason;
  std::int64_t grace_ms = -1;
};

TROUPE_INSPECT(preempt_run, reason, grace_ms)

/// The run has trained enough: it ends as finished, after the next report of
/// its ranks, as with `run_config::stop`.
struct finish_run {
  std::string reason; ///< Empty: it was asked to.
};

TROUPE_INSPECT(finish_run, reason)

/// Changes `run_config::callback_queue`; at least one.
struct resize_callback_queue {
  std::uint64_t places = 64;
};

TROUPE_INSPECT(resize_callback_queue, places)

/// One of these.
struct run_order {
  std::variant<finish_run, preempt_run, abort_run, resize_callback_queue> what;
};

TROUPE_INSPECT(run_order, what)

namespace internal {

struct order_receiver;

} // namespace internal

/// Lets callbacks act on their run. Copies belong to the same run, and may be
/// kept and used by any thread: orders to a run that is over change nothing. No
/// call waits.
class run_control {
public:
  using receiver = std::function<void(run_order)>;

  /// Of no run: nothing happens.
  run_control() = default;

  explicit run_control(receiver f);

  /// Ends the run as finished after the next report of its ranks, as
  /// `train_context::request_stop` does.
  void finish(std::string reason) const;

  /// Ends the run as preempted: ranks have *grace* (unset: the config's) to
  /// leave their loops with a last checkpoint.
  void
  preempt(std::string reason,
          std::optional<std::chrono::milliseconds> grace = std::nullopt) const;

  /// Ends the run as aborted, with time for its ranks to leave.
  void abort(std::string reason) const;

  /// Changes how many calls to callbacks may be without an answer before
  /// `report()` waits.
  void resize_callback_queue(std::uint64_t places) const;

  /// Whether both belong to one run.
  bool operator==(const run_control&) const = default;

private:
  friend struct internal::order_receiver;

  struct shared;

  void give(run_order x) const;

  std::shared_ptr<shared> shared_;
};

namespace internal {

/// Who gets the orders of a `run_control`.
struct order_receiver {
  /// From now on those of *x* get to *f*; empty: to no one. When this returns,
  /// no call of the last one is under way.
  static void connect(const run_control& x, run_control::receiver f);
};

} // namespace internal

} // namespace troupe
