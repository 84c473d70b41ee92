#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/checkpoint/checkpoint.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/hosts/link_credentials.hpp"
#include "troupe/runtime/process/rank_activity.hpp"
#include "troupe/runtime/rendezvous/key_value_store.hpp"
#include "troupe/runtime/report/report.hpp"
#include "troupe/runtime/values/journal_entry.hpp"
#include "troupe/runtime/values/run_context.hpp"

namespace troupe::internal {

/// What a rank's thread asks of the control plane. Calls block the rank's own
/// thread, never an actor; once the attempt ends or the run is to stop they
/// fail with `ec::stopped`.
class rank_link : public std::enable_shared_from_this<rank_link> {
public:
  virtual ~rank_link() = default;

  /// Delivers *x*. With *wait*, returns once the report of every rank is
  /// stored.
  virtual expected<void> report(rank_report x, bool wait) = 0;

  /// Adds *x* to the run's journal, ahead of this rank's later reports. Returns
  /// before that is done, unless many are under way.
  virtual expected<void> log(loop_event x) = 0;

  /// Waits until every rank is here.
  virtual expected<void> barrier() = 0;

  /// Rank 0's *bytes* on every rank, or rank 0's error.
  virtual expected<std::string> broadcast(expected<std::string> bytes) = 0;

  /// Committed checkpoints that were not evicted, oldest first, including all
  /// that this rank has reported.
  virtual expected<std::vector<reported_checkpoint>> reported_checkpoints() = 0;

  /// Whether one of those is called *name*; `ec::conflict` if something else
  /// has that name.
  virtual expected<bool> has_checkpoint(const std::string& name) = 0;

  virtual key_value_store& store() = 0;

  /// Shows the worker group what this rank waits for, apart from the calls
  /// above. It may be used after the loop's end.
  virtual std::shared_ptr<rank_activity> activity() = 0;

  /// What this rank, if it is the first of its host, shows those of other
  /// hosts. Has a key.
  virtual std::optional<link_credentials> credentials() const {
    return std::nullopt;
  }

  virtual bool stop_requested() const noexcept = 0;

  /// Why, if `stop_requested()`.
  virtual std::optional<troupe::stop_info> stop_info() const = 0;

  /// Calls *f* once, from another thread and at once, when a peer has failed or
  /// the run is to stop. An empty function removes the last one; when this
  /// returns, no call is under way on another thread. *f* may call this
  /// function, `stop_requested` and `stop_info`.
  virtual void on_abort(std::function<void(const error&)> f) = 0;
};

} // namespace troupe::internal
