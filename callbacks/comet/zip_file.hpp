#pragma once

#include <string>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe {

struct zip_entry {
  std::string name;
  std::string bytes; ///< Less than 4 GiB, as the whole archive.
};

/// A zip archive of *entries*, deflated.
expected<std::string> make_zip(const std::vector<zip_entry>& entries);

} // namespace troupe
