#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/journal/journal_entry.hpp"
#include "troupe/runtime/process/unique_fd.hpp"

namespace troupe {

/// Reads a journal line by line, also one that is still being written.
class journal_reader {
public:
  /// Starts at byte *offset*, the begin of a line: 0, or what `offset()` of an
  /// earlier reader was.
  static expected<journal_reader> open(const fs::path& path,
                                       std::uint64_t offset = 0);

  /// The next entry; nothing at the end, where a torn last line counts as not
  /// written yet: more may come later. A damaged line is `ec::corrupt` with its
  /// number; the next call goes on after it.
  expected<std::optional<journal_entry>> next();

  /// Where the next line begins, in bytes.
  std::uint64_t offset() const noexcept { return offset_; }

  /// Lines read so far, from where this reader started.
  std::uint64_t line() const noexcept { return line_; }

private:
  journal_reader(unique_fd file, fs::path path, std::uint64_t offset)
    : file_(std::move(file)), path_(std::move(path)), offset_(offset) {}

  expected<bool> fill();

  unique_fd file_;
  fs::path path_;
  std::string buffer_; // bytes from `offset_` on, after `begin_` are unread
  std::size_t begin_ = 0;
  std::uint64_t offset_ = 0;
  std::uint64_t line_ = 0;
};

} // namespace troupe
