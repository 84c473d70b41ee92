#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "troupe/runtime/each_field.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/metrics/metrics.hpp"

namespace troupe {

namespace internal {

/// How an object of type *T* is kept in a folder: `trainers/train_state.hpp`.
template <class T>
struct object_file;

} // namespace internal

/// One file of a checkpoint, as its manifest lists it.
struct file_entry {
  std::string path; ///< Relative to the checkpoint's folder, '/' between parts.
  std::uint64_t size = 0;     ///< Bytes.
  std::uint64_t checksum = 0; ///< XXH3-64 of the bytes.

  bool operator==(const file_entry&) const = default;
};

TROUPE_INSPECT(file_entry, path, size, checksum)

/// The files that one rank added to a checkpoint. They are in the staging
/// folder of that checkpoint, fsynced.
struct checkpoint_part {
  std::string name; ///< Name of the checkpoint; equal on all ranks.
  std::vector<file_entry> files; ///< What this rank wrote.
  /// How many files it wrote if the list is too long for a message: the list is
  /// then a file in the staging folder, and `files` is empty.
  std::uint64_t listed = 0;

  bool operator==(const checkpoint_part&) const = default;
};

TROUPE_INSPECT(checkpoint_part, name, files, listed)

/// Names a folder that contains a checkpoint; holds no data itself.
class checkpoint {
public:
  /// Names no folder.
  checkpoint() = default;

  /// The folder *path* as it is, without a copy.
  static checkpoint from_directory(fs::path path) {
    return checkpoint{std::move(path)};
  }

  /// Absolute folder of the checkpoint.
  const fs::path& path() const noexcept { return path_; }

  /// Last part of the path: the checkpoint's name in the run.
  std::string name() const { return path_.filename().string(); }

  /// Copies all files into *target* (made if missing) and returns it. Files of
  /// the same name there are replaced, each atomically; others stay. A *target*
  /// in the checkpoint itself is `ec::invalid_argument`, as is a link in it
  /// that leads back to a folder around it or to one around *target*.
  expected<fs::path> to_directory(const fs::path& target) const;

  /// Gives *x* what was saved as *name*: see `train_state`. Throws
  /// `train_error` that names the file; then *x* has not changed.
  template <class T>
  void load(const std::string& name, T& x) const {
    internal::object_file<T>::load(path_, name, x);
  }

  /// Compares every file that the manifest lists with it; the error names the
  /// first one that differs or is missing. Other files are ignored. A folder
  /// without a manifest (never committed by a run) is `ec::corrupt` too.
  expected<void> verify() const;

  /// The user's own values kept beside the files; empty if there are none.
  expected<metrics> metadata() const;

  /// Replaces the metadata atomically; if several ranks do, the last one wins.
  /// `ec::storage` for more than 16 MiB of JSON: the old metadata stays.
  expected<void> set_metadata(const metrics& x) const;

  /// Adds to the metadata; values of the same name are replaced. Concurrent
  /// additions of ranks are all kept. `ec::timeout` if another process holds
  /// the metadata for 30 s.
  expected<void> update_metadata(const metrics& x) const;

  bool operator==(const checkpoint& other) const {
    return path_ == other.path_;
  }

private:
  explicit checkpoint(fs::path path) : path_(std::move(path)) {}

  fs::path path_;
};

/// A checkpoint travels as the path of its folder.
template <class Inspector>
bool inspect(Inspector& f, checkpoint& x) {
  auto get = [&x] { return x.path().string(); };
  auto set = [&x](std::string path) {
    x = checkpoint::from_directory(std::move(path));
    return true;
  };
  return f.apply(get, set);
}

/// A committed checkpoint and the metrics that rank 0 reported with it.
struct reported_checkpoint {
  troupe::checkpoint data;
  metrics values;
  std::uint64_t index = 0;   ///< Report index.
  std::uint64_t attempt = 0; ///< Attempt that made it.

  bool operator==(const reported_checkpoint&) const = default;
};

TROUPE_INSPECT(reported_checkpoint, data, values, index, attempt)

} // namespace troupe
