#pragma once

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "troupe/runtime/fs.hpp"

namespace troupe::internal::test {

/// The number of this process's sockets that have a name, in a file system or
/// abstract.
inline std::size_t named_sockets() {
  std::set<std::string> own;
  for (fs::directory_iterator i{"/proc/self/fd"}, end; i != end; ++i) {
    boost::system::error_code gone;
    auto target = fs::read_symlink(i->path(), gone).string();
    if (!gone && target.starts_with("socket:["))
      own.insert(target.substr(8, target.size() - 9));
  }
  std::ifstream table{"/proc/net/unix"};
  std::string line;
  std::getline(table, line); // The headings.
  std::size_t result = 0;
  while (std::getline(table, line)) {
    std::istringstream columns{line};
    std::string skipped, inode, name;
    for (int i = 0; i < 6; ++i)
      columns >> skipped;
    columns >> inode >> name;
    result += own.contains(inode) && !name.empty();
  }
  return result;
}

} // namespace troupe::internal::test
