#pragma once

#include <vector>

#include "troupe/actors/protocol/messages.hpp"

namespace troupe {

/// Checkpoints as they travel: the path of the folder stands for it.
std::vector<checkpoint_entry>
entries_of(const std::vector<reported_checkpoint>& x);

/// A page of *all* (oldest first) from report index *first* on: one entry at
/// least, about a MiB at most.
checkpoint_list page_of(const std::vector<reported_checkpoint>& all,
                        std::uint64_t first);

std::vector<reported_checkpoint>
checkpoints_of(std::vector<checkpoint_entry> x);

} // namespace troupe
