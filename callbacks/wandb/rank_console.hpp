#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "troupe/runtime/fs.hpp"

namespace troupe {

/// The whole lines of log file *path* from byte *from* on, each with its line
/// end. *from* moves behind them. If more than 256 KiB wait, the oldest are
/// left out and a line says so. A file that is not there has none.
std::vector<std::string> read_console(const fs::path& path,
                                      std::uint64_t& from);

} // namespace troupe
