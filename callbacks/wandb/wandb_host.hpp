#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "troupe/callbacks/wandb/wandb_records.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe::internal {

/// Measures this host and this process, from /proc, under W&B's own names. The
/// use of the CPU is that between two samples, so the first has none.
class host_stats {
public:
  std::vector<wandb_item> sample();

private:
  std::uint64_t busy_ = 0;
  std::uint64_t total_ = 0; ///< 0: no sample yet.
};

/// Bytes of memory of this host; 0 if unknown.
std::uint64_t host_memory();

/// Reads the whole lines of the log file *path* from byte *from* on, each with
/// its line end, and moves *from* behind them. If more than 256 KiB are unread,
/// leaves out the oldest and says so in a line. A missing file has no lines.
std::vector<std::string> read_console(const fs::path& path,
                                      std::uint64_t& from);

} // namespace troupe::internal
