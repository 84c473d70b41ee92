#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "troupe/runtime/checkpoint/file_entry.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/storage/held_folder.hpp"

namespace troupe {

/// Every name in `checkpoints/` that begins like this is unfinished business of
/// some attempt; it goes when a run starts there.
inline constexpr const char* staging_prefix = ".staging-";

/// Folder in `checkpoints/` where a rank of *attempt* writes files that it has
/// not reported yet; no two of one process have the same *serial*.
inline std::string working_folder(std::uint64_t attempt, int rank,
                                  std::uint64_t serial) {
  return staging_prefix + std::to_string(attempt) + "-rank_"
         + std::to_string(rank) + '-' + std::to_string(serial);
}

/// Folder in `checkpoints/` where the files come together that the ranks of
/// *attempt* sealed for report *index*. Both numbers are in the name, so that
/// no attempt finds files of another.
inline std::string staging_folder(std::uint64_t attempt, std::uint64_t index) {
  return staging_prefix + std::to_string(attempt) + '-' + std::to_string(index);
}

/// Folder of one rank within the staging folder.
inline std::string rank_folder(int rank) {
  return "rank_" + std::to_string(rank);
}

/// The list of one rank's files within the staging folder, where it is too long
/// for a message.
inline std::string rank_list_file(int rank) {
  return "rank_" + std::to_string(rank) + ".list";
}

/// Whether *files* belong into a list: in a message they would take more than
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

} // namespace troupe
