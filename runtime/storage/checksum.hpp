#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/process/unique_fd.hpp"

namespace troupe {

/// XXH3-64 of *bytes*.
std::uint64_t checksum(std::string_view bytes) noexcept;

/// 16 hexadecimal digits; what JSON files hold, since its numbers are doubles
/// to many readers.
std::string checksum_text(std::uint64_t x);

/// Size and checksum of a file's bytes.
struct file_digest {
  std::uint64_t size = 0;
  std::uint64_t checksum = 0;
};

/// Reads *file* from its begin to its end; *path* is for the error's sentence.
expected<file_digest> digest_file(const unique_fd& file, const fs::path& path);

} // namespace troupe
