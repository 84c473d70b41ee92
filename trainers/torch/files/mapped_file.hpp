#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe {

/// A whole file as memory. Writing to the memory changes this mapping alone.
class mapped_file {
public:
  static expected<std::shared_ptr<mapped_file>> open(const fs::path& path);

  ~mapped_file();
  mapped_file(const mapped_file&) = delete;
  mapped_file& operator=(const mapped_file&) = delete;

  std::span<std::byte> bytes() const noexcept { return bytes_; }

private:
  explicit mapped_file(std::span<std::byte> bytes) : bytes_(bytes) {}

  std::span<std::byte> bytes_;
};

} // namespace troupe
