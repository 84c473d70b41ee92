#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "troupe/runtime/checkpoint/file_entry.hpp"

namespace troupe {

/// The files that one rank added to a checkpoint. They lie, fsynced, in the
/// staging folder of that checkpoint.
struct checkpoint_part {
  std::string name; ///< Name of the checkpoint; equal on all ranks.
  std::vector<file_entry> files; ///< What this rank wrote.
  /// How many files it wrote if they are too many for a message: their list is
  /// a file in the staging folder then, and `files` is empty.
  std::uint64_t listed = 0;

  bool operator==(const checkpoint_part&) const = default;
};

template <class Inspector>
bool inspect(Inspector& f, checkpoint_part& x) {
  return f.object(x).fields(f.field("name", x.name), f.field("files", x.files),
                            f.field("listed", x.listed));
}

} // namespace troupe
