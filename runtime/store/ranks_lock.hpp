#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/storage/file_lock.hpp"
#include "troupe/runtime/storage/held_folder.hpp"
#include "troupe/runtime/values/journal_entry.hpp"

namespace troupe::internal {

/// What a rank process needs to join its attempt.
struct ranks_ticket {
  unique_fd file;          ///< The file `ranks`, without a lock.
  std::uint64_t token = 0; ///< What it says while the attempt is the latest.
};

/// A variable in the environment of ranks, and so of the programs that they
/// start: its value names the attempt among all of all runs.
constexpr const char* attempt_variable = "TROUPE_ATTEMPT";
std::string attempt_value(std::uint64_t token);

/// Keeps the attempts of a run apart by the file `ranks` in its folder. Every
/// rank process holds a shared `flock` on it; an attempt begins by taking the
/// lock exclusively and writing a new token.
///
/// A rank takes its lock itself (`join_attempt`): no descriptor of the driver,
/// which the user's program may fork at any time, ever holds it. A rank that
/// comes too late finds another token and exits.
///
/// On a host that is lost, a rank may live on and keep its lock: frozen, or
/// behind a network that is cut. An attempt that gives it up replaces the file
/// and writes another token into the old one, so that whatever starts there
/// later joins no attempt.
///
/// All calls but `begin` may come from any thread.
class ranks_lock {
public:
  /// The hosts whose ranks an attempt gives up after it has *waited* for that
  /// long; empty: none. Any thread.
  using abandoned_hosts =
    std::function<std::string(std::chrono::milliseconds waited)>;

  /// Waits, at most *limit*, until no process of an earlier attempt is left,
  /// but for those on *abandoned* hosts.
  /// Kills processes that its ranks forked, and programs that they started if
  /// no spawner has done that: it was another driver's, or was lost. *note*
  /// gets events that name them while the file still has the earlier token.
  /// `ec::timeout` names what is left; `ec::stopped` once the wait is
  /// *given_up*. In a copy of a run's folder nothing is killed: the original
  /// may be running.
  expected<void> begin(const held_folder& run, std::chrono::milliseconds limit,
                       const std::function<bool()>& given_up,
                       const store_event_listener& note,
                       const abandoned_hosts& abandoned);

  /// The last attempt is over: kills its leftover processes as above, at once,
  /// if its spawner was lost. Takes seconds at most.
  expected<void> end_remaining(const held_folder& run,
                               const store_event_listener& note);

  /// For a rank of the attempt that began last.
  expected<ranks_ticket> ticket() const;

  /// Its token; 0 while no attempt is under way.
  std::uint64_t token() const;

  /// The driver has no attempt under way any more.
  void release();

private:
  mutable std::mutex mutex_; // guards what follows
  fs::path path_;
  own_lock file_; ///< Locked for the driver's own part in the attempt.
  std::uint64_t token_ = 0;
  std::uint64_t losses_ = 0; ///< Of spawners, before the attempt began.
};

/// No host is lost.
inline std::string no_abandoned_hosts(std::chrono::milliseconds) {
  return {};
}

/// For `abandoned_hosts`: those of a driver that is gone.
inline constexpr const char* hosts_of_earlier_driver = "an earlier driver";

/// How long these have, if that driver had this `scaling_config::lost_after`,
/// until their agents have noticed its loss and have ended their ranks.
std::chrono::milliseconds
patience_of_agents(std::chrono::milliseconds lost_after) noexcept;

/// What ranks on another host than the driver's join the attempt with that has
/// *token*, of the run in the folder *run*. `ec::invalid_config` if what lies
/// there is not the run's storage; `ec::storage` if that fails; `ec::conflict`
/// if its attempt is another one: another storage, or the next attempt has
/// begun meanwhile.
expected<ranks_ticket> open_ranks_ticket(const fs::path& run,
                                         std::uint64_t token);

/// A rank process of the attempt of *ticket* keeps the result open until it
/// ends. `ec::stopped` if a later attempt has begun.
expected<unique_fd> join_attempt(const ranks_ticket& ticket);

} // namespace troupe::internal
