#pragma once

#include <cstdint>
#include <vector>

#include "troupe/runtime/checkpoint/file_entry.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe {

/// A checkpoint that a rank is writing: a folder on the run's storage, so that
/// committing it copies nothing.
///
/// Write files below `path()`, then hand the object to `context.report`. One
/// that is dropped instead removes its folder.
class staged_checkpoint {
public:
  /// Makes the folder
  /// `<run>/checkpoints/.staging-<attempt>-<index>/rank_<rank>/`.
  static expected<staged_checkpoint> create(const fs::path& run_path,
                                            std::uint64_t attempt,
                                            std::uint64_t index, int rank);

  staged_checkpoint(staged_checkpoint&& other) noexcept;
  staged_checkpoint& operator=(staged_checkpoint&& other) noexcept;
  ~staged_checkpoint();

  /// Where this rank writes its files; subfolders are fine.
  const fs::path& path() const noexcept { return path_; }

  /// Copies (or moves) every file below *source* into `path()`.
  expected<void> add_directory(const fs::path& source, bool move);

  /// Checksums and fsyncs every file below `path()` and gives up ownership:
  /// from now on the commit owns the files (and makes the folders it moves them
  /// to durable). An empty checkpoint is an error; empty folders are not kept.
  expected<std::vector<file_entry>> seal();

private:
  explicit staged_checkpoint(fs::path path) : path_(std::move(path)) {}

  fs::path path_; // empty once moved from or sealed
};

} // namespace troupe
