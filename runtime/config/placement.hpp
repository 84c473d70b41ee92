#pragma once

#include <cstdint>

namespace troupe {

/// Where ranks live.
enum class placement : std::uint8_t {
  processes,  ///< One process per rank on this host.
  in_process, ///< One thread per rank in the caller's process; loops may be
              ///< closures.
};

} // namespace troupe
