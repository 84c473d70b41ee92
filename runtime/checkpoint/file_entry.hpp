#pragma once

#include <cstdint>
#include <string>

namespace troupe {

/// One file of a checkpoint, as its manifest lists it.
struct file_entry {
  std::string path; ///< Relative to the checkpoint's folder, '/' between parts.
  std::uint64_t size = 0;     ///< Bytes.
  std::uint64_t checksum = 0; ///< XXH3-64 of the bytes.

  bool operator==(const file_entry&) const = default;
};

template <class Inspector>
bool inspect(Inspector& f, file_entry& x) {
  return f.object(x).fields(f.field("path", x.path), f.field("size", x.size),
                            f.field("checksum", x.checksum));
}

} // namespace troupe
