#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/metrics/metrics.hpp"
#include "troupe/runtime/store/run_description.hpp"
#include "troupe/runtime/values/run_status.hpp"

namespace troupe {

/// The sweep that a run is a trial of.
struct tracked_sweep {
  std::string name; ///< Of its folder.
  fs::path path;    ///< Absolute folder.
  std::string id;   ///< 32 hex digits; stays the same over restarts.
  std::chrono::system_clock::time_point start_time; ///< Of its first start.
};

/// A run as trackers see it before its first record.
struct tracked_run {
  std::string name; ///< `run_config::name`.
  fs::path path;    ///< Absolute folder of the run.
  std::string id;   ///< 32 hex digits; stays the same over restarts.

  /// As given to `start_tracking` in the train loop; empty: not given. A
  /// tracker's own options win.
  std::string project;
  std::string experiment;
  std::string display_name;

  /// The loop's config, nested names with slashes: `optimizer/lr`.
  metrics config;
  /// Where and by whom it was started: `troupe.run_uid`, `troupe.storage_path`,
  /// `troupe.version`, `user`, `host`, `program`.
  std::map<std::string, std::string> tags;
  std::chrono::system_clock::time_point start_time;
  std::uint64_t attempt = 0;
  /// Unset: it is not a trial. Services that have groups or nested runs show
  /// all trials of a sweep below it.
  std::optional<tracked_sweep> sweep;

  /// Requests a stop when no one waits for the tracker any longer: a pending
  /// request must then end within a second.
  std::stop_token cancelled;

  /// The run's current status; empty unless this process drives the run.
  std::function<run_status()> status;

  /// The tag called *name*; empty: there is none.
  std::string tag(const std::string& name) const {
    auto found = tags.find(name);
    return found == tags.end() ? std::string{} : found->second;
  }
};

namespace internal {

/// Describes the run in *run_path* for trackers.
tracked_run describe_tracked_run(const run_description& x,
                                 const fs::path& run_path);

/// The values of a JSON object by name, nested ones as `outer/inner`, elements
/// of lists as `list/0`. Accepts the bare `NaN` and `Infinity` that cereal
/// writes. Empty if *json* is not a JSON object.
metrics config_values(std::string_view json);

} // namespace internal

} // namespace troupe
