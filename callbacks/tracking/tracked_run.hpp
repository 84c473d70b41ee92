#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <stop_token>
#include <string>

#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/metrics/metrics.hpp"
#include "troupe/runtime/run/run_status.hpp"

namespace troupe {

/// What trackers know about a run before its first record.
struct tracked_run {
  std::string name; ///< The run's own, as in `run_config::name`.
  fs::path path;    ///< Absolute folder of the run.
  std::string id;   ///< 32 hex digits; the same in every life of the run.

  /// What the train loop called them in `start_tracking`; empty: nothing. A
  /// tracker's own options win.
  std::string project;
  std::string experiment;
  std::string display_name;

  /// The loop's config, nested names with slashes: `optimizer/lr`.
  metrics config;
  /// Where and by whom: `troupe.run_uid`, `troupe.storage_path`,
  /// `troupe.version`, `user`, `host`, `program`.
  std::map<std::string, std::string> tags;
  std::chrono::system_clock::time_point start_time;
  std::uint64_t attempt = 0;

  /// Asked to stop when no one waits for the tracker any longer: a request that
  /// is under way must then end within a second.
  std::stop_token cancelled;

  /// How the run is now; empty unless the run is this process's own.
  std::function<run_status()> status;
};

} // namespace troupe
