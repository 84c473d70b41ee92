#pragma once

#include "tests/support/temporary_folder.hpp"

namespace troupe::internal::test {

/// A folder in another file system than `temporary_folder`: in shared memory.
/// It is removed at the end with all its contents.
class folder_elsewhere {
public:
  folder_elsewhere() : path_("/dev/shm" / fs::unique_path("troupe-%%%%-%%%%")) {
    fs::create_directory(path_);
  }

  ~folder_elsewhere() {
    boost::system::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  folder_elsewhere(const folder_elsewhere&) = delete;
  folder_elsewhere& operator=(const folder_elsewhere&) = delete;

  fs::path operator/(const std::string& name) const { return path_ / name; }

private:
  fs::path path_;
};

} // namespace troupe::internal::test
