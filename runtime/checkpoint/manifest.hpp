#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/runtime/checkpoint/file_entry.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/metrics/metrics.hpp"

namespace troupe {

/// What a committed checkpoint says about itself, in its `manifest.json`.
struct manifest {
  std::string run_name;
  std::uint64_t attempt = 0;     ///< Attempt that made it.
  std::uint64_t index = 0;       ///< Report index.
  metrics values;                ///< What rank 0 reported with it.
  std::vector<file_entry> files; ///< All but `manifest.json` and the metadata.

  bool operator==(const manifest&) const = default;
};

/// Name of the manifest within a checkpoint; no rank may write such a file.
inline constexpr const char* manifest_file_name = "manifest.json";

/// Name of the user's metadata. It may change after the commit and is therefore
/// in no manifest.
inline constexpr const char* metadata_file_name = ".metadata.json";

/// Version of the format; a reader refuses any other.
inline constexpr int manifest_format = 1;

/// Whether *path* names something below the folder it is relative to: parts
/// joined by '/', none of them empty, "." or "..".
bool is_path_below(std::string_view path) noexcept;

/// JSON with a checksum of its own as last field.
std::string to_json(const manifest& x);

/// Parses *text*; whatever is wrong with it is `ec::corrupt` naming *file*.
expected<manifest> manifest_from_json(const std::string& text,
                                      const fs::path& file);

/// Reads the manifest of the checkpoint in *folder*.
expected<manifest> read_manifest(const fs::path& folder);

/// Compares every file in *folder* with *x*; the error names the first that is
/// missing, differs or does not belong.
expected<void> verify_files(const fs::path& folder, const manifest& x);

} // namespace troupe
