#pragma once

#include <cstdint>
#include <string>

#include "troupe/runtime/fs.hpp"

namespace troupe {

/// Every name in `checkpoints/` that begins like this is unfinished business of
/// some attempt; it goes when a run starts there.
inline constexpr const char* staging_prefix = ".staging-";

/// Where the ranks of *attempt* write the checkpoint of report *index*. Both
/// numbers are in the name, so that no attempt finds files of another.
inline fs::path staging_folder(const fs::path& run_path, std::uint64_t attempt,
                               std::uint64_t index) {
  return run_path / "checkpoints"
         / (staging_prefix + std::to_string(attempt) + '-'
            + std::to_string(index));
}

/// Folder of one rank within the staging folder.
inline fs::path rank_folder(int rank) {
  return "rank_" + std::to_string(rank);
}

} // namespace troupe
