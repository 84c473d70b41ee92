#pragma once

#include "troupe/runtime/fs.hpp"

namespace troupe::internal::test {

/// Descriptors of this process for memory that messages share.
inline int shared_descriptors() {
  int result = 0;
  for (fs::directory_iterator i{"/proc/self/fd"}, end; i != end; ++i) {
    boost::system::error_code gone;
    auto target = fs::read_symlink(i->path(), gone).string();
    result += !gone && target.starts_with("/memfd:troupe-message");
  }
  return result;
}

} // namespace troupe::internal::test
