#pragma once

#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "troupe/runtime/fs.hpp"

namespace troupe::internal::test {

/// A folder that is removed at the end with all its contents.
class temporary_folder {
public:
  temporary_folder()
    : path_(fs::temp_directory_path() / fs::unique_path("troupe-%%%%-%%%%")) {
    fs::create_directory(path_);
  }

  ~temporary_folder() {
    boost::system::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;

  const fs::path& path() const noexcept { return path_; }

  fs::path operator/(const std::string& name) const { return path_ / name; }

private:
  fs::path path_;
};

/// A folder for sockets that only this user can enter.
class private_folder : public temporary_folder {
public:
  private_folder() { fs::permissions(path(), fs::owner_all); }
};

inline std::string bytes_of(const fs::path& path) {
  // In large pieces: a sanitizer would look at each character.
  std::ifstream in{path.string(), std::ios::binary};
  std::ostringstream result;
  result << in.rdbuf();
  return std::move(result).str();
}

inline void write_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream{path.string(), std::ios::binary} << bytes;
}

} // namespace troupe::internal::test
