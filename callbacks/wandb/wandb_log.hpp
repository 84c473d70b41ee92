#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/process/unique_fd.hpp"

namespace troupe {

/// Writes W&B's transaction log `run-<id>.wandb`: seven bytes of header, then
/// records in chunks within blocks of 32 KiB, as LevelDB's logs have them, but
/// with zlib's CRC-32, unmasked.
class wandb_log {
public:
  /// Makes the file *path*, which must not exist, with its header.
  static expected<wandb_log> create(const fs::path& path,
                                    std::stop_token over = {});

  /// Opens *path* to append behind its last whole record. Records from byte
  /// *from* on, where a record begins, are given to *see*; a torn one at the
  /// end is cut off, since W&B's reader loses whatever stands behind one.
  static expected<wandb_log>
  reopen(const fs::path& path, std::uint64_t from,
         const std::function<void(std::string_view)>& see,
         std::stop_token over = {});

  /// Adds one record to what `flush` will write.
  void append(std::string_view record);

  /// Writes what was appended and makes it durable. After a failure the object
  /// is to be dropped and the file reopened.
  expected<void> flush();

  /// Bytes that are durable.
  std::uint64_t size() const noexcept { return size_; }

  const fs::path& path() const noexcept { return path_; }

private:
  wandb_log(fs::path path, unique_fd file, std::uint64_t size,
            std::stop_token over)
    : path_(std::move(path)), file_(std::move(file)), size_(size),
      over_(std::move(over)) {}

  void append_chunk(std::uint8_t type, std::string_view data);

  fs::path path_;
  unique_fd file_;
  std::uint64_t size_ = 0;
  std::stop_token over_;
  std::string pending_;
};

} // namespace troupe
