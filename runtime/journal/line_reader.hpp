#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/process/unique_fd.hpp"

namespace troupe {

/// Reads the lines of a file that may still grow.
class line_reader {
public:
  /// Starts at byte *offset*, the begin of a line.
  static expected<line_reader> open(const fs::path& path, std::uint64_t offset);

  /// Reads *file*, which is open; *path* is for the error's sentence.
  line_reader(unique_fd file, fs::path path, std::uint64_t offset)
    : file_(std::move(file)), path_(std::move(path)), offset_(offset) {}

  /// The next line with its line end, valid until the next call; nothing if
  /// there is no whole line (yet).
  expected<std::optional<std::string_view>> next();

  /// Where the next line begins, in bytes.
  std::uint64_t offset() const noexcept { return offset_; }

  const fs::path& path() const noexcept { return path_; }

private:
  expected<bool> fill();

  unique_fd file_;
  fs::path path_;
  std::string buffer_;    // bytes of the file from `offset_ - begin_` on
  std::size_t begin_ = 0; // of the next line within the buffer
  std::uint64_t offset_ = 0;
};

} // namespace troupe
