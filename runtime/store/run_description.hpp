#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/storage/held_folder.hpp"

namespace troupe::internal {

/// What a run is and who runs it: the content of `run.json`.
struct run_description {
  std::string name;
  std::string id; ///< 32 hex digits; the same after every restart.
  /// Ids of the run before its `run.json` was lost, as far as its checkpoints
  /// had them.
  std::vector<std::string> former_ids;
  std::string begun; ///< When the run's first driver began, UTC, ISO 8601.
  std::string time;  ///< When this driver began, UTC, ISO 8601.
  std::string host;  ///< Of the driver.
  std::string user;  ///< Login name of the driver, or its number.
  /// Path of the driver's program. Its arguments stay out: they may hold
  /// secrets.
  std::string program;
  std::uint64_t pid = 0; ///< Of the driver.
  std::string troupe;    ///< Version of the library.
  std::string compiler;  ///< That compiled the library.
  std::string config;    ///< The loop's config as JSON text; may be empty.
  // -- not in the file: how it differs from that of the driver before
  bool id_is_new = false;           ///< The id was made just now.
  std::string why_new;              ///< Why the earlier id is not known.
  std::vector<std::string> changes; ///< "another config", for example.
};

/// 32 random hex digits.
std::string new_id();

/// Describes the run *name* in the folder *run* as this process runs it, with
/// the id and the begin that its `run.json` has. Writes nothing.
expected<run_description> describe_run(const held_folder& run,
                                       const std::string& name,
                                       const std::string& config);

/// Replaces the `run.json` in the folder *run*.
expected<void> save_description(const held_folder& run,
                                const run_description& x);

/// Reads the `run.json` of the run in *run_path*.
expected<run_description> read_description(const fs::path& run_path);

} // namespace troupe::internal
