#pragma once

#include <string>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/process/unique_fd.hpp"

namespace troupe {

/// The folder `<storage>/<name>` of a run, held by one driver at a time.
///
/// The lock is a `flock` of the file `lock` and goes with the object, or with
/// the process however it ends.
class run_folder {
public:
  /// Makes what is missing and takes the lock. `ec::storage` if the storage can
  /// not be written to, with the reason; `ec::conflict` with the holder's pid
  /// and host if another driver has the run.
  static expected<run_folder> open(const fs::path& storage_path,
                                   const std::string& name);

  const fs::path& path() const noexcept { return path_; }
  fs::path checkpoints() const { return path_ / "checkpoints"; }
  fs::path logs() const { return path_ / "logs"; }
  fs::path sinks() const { return path_ / "sinks"; }
  fs::path journal_file() const { return path_ / "journal.jsonl"; }

private:
  run_folder(fs::path path, unique_fd lock)
    : path_(std::move(path)), lock_(std::move(lock)) {}

  fs::path path_;
  unique_fd lock_;
};

} // namespace troupe
