#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "troupe/runtime/checkpoint/checkpoint.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/process/forked_process.hpp"
#include "troupe/runtime/storage/held_folder.hpp"

namespace troupe {

class staged_checkpoint;

namespace internal {

/// Folder in `checkpoints/` that collects the files which the ranks of
/// *attempt* sealed for report *index*. Both numbers are in the name, so that
/// no attempt finds files of another.
std::string staging_folder(std::uint64_t attempt, std::uint64_t index);

/// Folder of one rank within the staging folder.
std::string rank_folder(int rank);

/// The list of one rank's files within the staging folder, if it is too long
/// for a message.
std::string rank_list_file(int rank);

/// Whether *files* need a separate list: in a message they would take more than
/// half a MiB.
bool is_long_list(const std::vector<file_entry>& files);

/// Writes *files* to the new file *name* in *folder*.
expected<void> write_file_list(const held_folder& folder,
                               const std::string& name,
                               const std::vector<file_entry>& files);

/// What `write_file_list` wrote, *count* files; anything else is `ec::corrupt`.
expected<std::vector<file_entry>> read_file_list(const held_folder& folder,
                                                 const std::string& name,
                                                 std::uint64_t count);

/// What a rank does with a `staged_checkpoint` besides writing its files.
struct staging {
  /// Makes a folder in `<run>/checkpoints/` that no other rank, attempt or
  /// object uses. `checkpoints/` is held from then on: even if it is renamed,
  /// Troupe creates, renames and removes nothing in another folder. *run_inode*
  /// (0: any) must be that of the run's folder.
  static expected<staged_checkpoint> create(const fs::path& run_path,
                                            std::uint64_t attempt, int rank,
                                            std::uint64_t run_inode = 0);

  /// Checksums and fsyncs every file below the path of *x* and takes its
  /// ownership: from now on the files are the rank's part of the checkpoint
  /// *name* of report *index*, and the commit owns them (and makes the folders
  /// it moves them to durable). An empty checkpoint is an error; empty folders
  /// are not kept. `ec::storage` if the run's folder was renamed or replaced:
  /// what was written by path may lie elsewhere.
  static expected<checkpoint_part> seal(staged_checkpoint& x,
                                        std::uint64_t index, std::string name);

  /// Whether *x* has files to remove once the report is stored.
  static bool has_sources(const staged_checkpoint& x) noexcept;

  /// The report is stored: removes what `add_directory` was to move into *x*,
  /// as far as that is possible.
  static void remove_sources(staged_checkpoint& x) noexcept;
};

} // namespace internal

/// A checkpoint that a rank is writing: a folder on the run's storage, so that
/// committing it copies nothing.
///
/// Write files below `path()`, then pass the object to any later
/// `context.report`. If it is destroyed before that, it removes its folder. In
/// a process that the loop forks it removes nothing and cannot be reported.
class staged_checkpoint {
public:
  staged_checkpoint(staged_checkpoint&& other) noexcept;
  staged_checkpoint& operator=(staged_checkpoint&& other) noexcept;
  ~staged_checkpoint();

  /// Where this rank writes its files; subfolders are fine.
  const fs::path& path() const noexcept { return path_; }

  /// Writes *x* into a file that *name* begins: see `train_state` for what can
  /// be saved. Throws `train_error` that names the file.
  template <class T>
  void save(const std::string& name, const T& x) {
    internal::object_file<T>::save(path(), name, x);
  }

  /// Copies every file below *source* into `path()`; a file of the same name is
  /// replaced. With *move* the files in *source* are removed once the report is
  /// stored; a refused report removes nothing.
  expected<void> add_directory(const fs::path& source, bool move);

private:
  friend struct internal::staging;

  staged_checkpoint(internal::held_folder checkpoints, std::uint64_t attempt,
                    int rank, fs::path path)
    : checkpoints_(std::move(checkpoints)), attempt_(attempt), rank_(rank),
      path_(std::move(path)) {}

  /// Its folder as it is now: the loop may have put another one in its place.
  expected<internal::held_folder> folder() const {
    return checkpoints_.existing(path_.filename());
  }
  expected<internal::held_folder> hand_over(const std::string& folder_name);

  internal::owner_process owner_;
  internal::held_folder checkpoints_;
  std::uint64_t attempt_ = 0;
  int rank_ = 0;
  fs::path path_; // empty once moved from or sealed
  std::vector<fs::path> sources_;
};

} // namespace troupe
