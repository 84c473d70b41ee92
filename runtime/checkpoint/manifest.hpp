#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/runtime/checkpoint/checkpoint.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/metrics/metrics.hpp"
#include "troupe/runtime/storage/held_folder.hpp"

namespace troupe::internal {

/// Refuses a name that is not one path component of at most 200 bytes, has a
/// control character, or begins with a dot (the run uses those).
expected<void> validate_checkpoint_name(const std::string& name);

/// Why a second checkpoint cannot be called *name*.
tl::unexpected<error> name_is_taken(const std::string& name);

/// The content of `manifest.json`, which describes a committed checkpoint.
struct manifest {
  std::string run_name;
  /// Id of the run, which does not change when its folder is renamed; empty in
  /// a manifest of an earlier version.
  std::string run_id;
  /// Name of the checkpoint, so that a copy beside it is recognized; empty in a
  /// manifest of an earlier version.
  std::string name;
  std::uint64_t attempt = 0; ///< Attempt that made it.
  std::uint64_t index = 0;   ///< Report index.
  /// What was reported with it, one entry per rank, ordered by rank: enough to
  /// write the journal's line if the driver dies first. An earlier version has
  /// rank 0's only.
  std::vector<metrics> values;
  std::vector<double> step_s; ///< As in the report's batch; empty: not known.
  double wait_s = 0;
  std::vector<file_entry> files; ///< All but `manifest.json` and the metadata.

  /// What rank 0 reported.
  metrics first_values() const {
    return values.empty() ? metrics{} : values.front();
  }

  bool operator==(const manifest&) const = default;
};

/// Name of the manifest within a checkpoint; no rank may write such a file.
inline constexpr const char* manifest_file_name = "manifest.json";

/// Name of the user's metadata. It may change after the commit and is therefore
/// in no manifest.
inline constexpr const char* metadata_file_name = ".metadata.json";

/// Whether *path* within a checkpoint is true of that folder only: its
/// manifest, or what a process left that was killed while it set the metadata.
bool is_own_file(std::string_view path);

/// Version of the format; a reader refuses any other.
inline constexpr int manifest_format = 1;

/// Largest manifest that is written or read: a million files, each with a path
/// of 200 bytes and its description, and the metrics of many ranks.
inline constexpr std::size_t max_manifest_bytes = 1024 * 1024 * 1024;

/// Whether *path* names something below the folder it is relative to: parts
/// joined by '/', none of them empty, "." or "..".
bool is_path_below(std::string_view path) noexcept;

/// JSON with a checksum of its own as last field.
std::string to_json(const manifest& x);

/// Parses *text*; any mistake in it is `ec::corrupt` naming *file*.
expected<manifest> manifest_from_json(const std::string& text,
                                      const fs::path& file);

/// Reads the manifest of the checkpoint in *folder*.
expected<manifest> read_manifest(const fs::path& folder);

/// The same of the checkpoint *name* in the folder *above*.
expected<manifest> read_manifest(const held_folder& above,
                                 const std::string& name);

/// Compares every file that *x* lists with the one in *folder*; the error names
/// the first that is missing or differs. Other files are ignored.
expected<void> verify_files(const fs::path& folder, const manifest& x);
expected<void> verify_files(const held_folder& above, const std::string& name,
                            const manifest& x);

/// The files in *folder* that are neither listed in *x* nor the run's own: left
/// by a user, an editor or a file system.
expected<std::vector<std::string>> unlisted_files(const fs::path& folder,
                                                  const manifest& x);

} // namespace troupe::internal
