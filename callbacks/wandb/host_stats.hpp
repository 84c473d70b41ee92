#pragma once

#include <cstdint>
#include <vector>

#include "troupe/callbacks/wandb/wandb_item.hpp"

namespace troupe {

/// How this host and this process are, from /proc, under W&B's own names.
/// Needs two samples for the share of the CPU that was used between them.
class host_stats {
public:
  std::vector<wandb_item> sample();

private:
  std::uint64_t busy_ = 0;
  std::uint64_t total_ = 0; ///< 0: no sample yet.
};

/// Bytes of memory of this host; 0 if it does not tell.
std::uint64_t host_memory();

} // namespace troupe
