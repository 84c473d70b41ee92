#pragma once

#include <string>
#include <string_view>
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

/// The bytes of the entry *name* of an *archive* that `make_zip` gave;
/// `ec::corrupt` if it has none or another checksum.
expected<std::string> zip_member(std::string_view archive,
                                 std::string_view name);

} // namespace troupe
