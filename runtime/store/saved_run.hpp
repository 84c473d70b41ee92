#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/checkpoint/kept_checkpoint.hpp"
#include "troupe/runtime/config/run_config.hpp"
#include "troupe/runtime/values/run_error.hpp"
#include "troupe/runtime/values/run_status.hpp"

namespace troupe::internal {

class held_folder;

/// A checkpoint that retention evicted. Its folder may still exist; these
/// numbers identify it before it is removed.
struct doomed_checkpoint {
  std::string name;
  std::uint64_t index = 0;
  std::uint64_t attempt = 0;

  bool operator==(const doomed_checkpoint&) const = default;
};

/// What must survive a run's processes: the content of `state.json`.
struct saved_run {
  run_status_kind status = run_status_kind::running;
  std::uint64_t next_attempt = 0; ///< Number that no attempt has used yet.
  std::uint64_t next_report = 0;  ///< Report index that none has used yet.
  checkpoint_config retention;    ///< So that a reader knows the best ones.
  std::vector<kept_checkpoint> checkpoints; ///< Oldest first.
  /// Nothing but these is ever removed from `checkpoints/`.
  std::vector<doomed_checkpoint> doomed;
  /// Folders of rotten checkpoints that were set aside, oldest first.
  std::vector<std::string> rotten;
  std::optional<run_error> error;
  failure_counts failures;
  std::string stop_reason; ///< Of a finished run that was ended.
  /// `scaling_config::lost_after` of the driver of the latest attempt, in ms;
  /// 0: it had no other hosts.
  std::int64_t lost_after_ms = 0;
  /// Lines of the journal may be in memory alone, since a sync of it has
  /// failed: the next driver writes it again.
  bool journal_unsynced = false;
};

/// Version of the format; a reader refuses a later one. In the first one, all
/// checkpoints have their metrics.
inline constexpr int saved_run_format = 2;

/// Largest `state.json` that is written or read.
inline constexpr std::size_t max_state_bytes = 1024 * 1024 * 1024;

/// JSON with a checksum of its own as last field. Checkpoints go by name, so
/// that the run's folder can be moved.
std::string to_json(const saved_run& x);

/// For `saved_run_from_json`: the metrics of all checkpoints.
inline constexpr std::size_t all_checkpoints = std::size_t(-1);

/// The state of *run* from *text*; any mistake in it is `ec::corrupt` naming
/// the file. Metrics of many names or long texts are not in it and are read
/// from the manifests of the *newest* checkpoints, and of all if a score ranks
/// them: one with 10,000 numbers takes 10 ms.
expected<saved_run> saved_run_from_json(const std::string& text,
                                        const held_folder& run,
                                        std::size_t newest = all_checkpoints);

/// Reads `state.json`, as above; nothing if there is none yet.
expected<std::optional<saved_run>>
load_run(const fs::path& run_path, std::size_t newest = all_checkpoints);

} // namespace troupe::internal
