#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe::internal {

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

/// Writes a file beside its final place and renames it at the end, so that no
/// reader sees half a file and mappings of an older one stay intact. Without
/// `commit` the file is removed.
class replacing_file {
public:
  static expected<replacing_file> create(const fs::path& path);

  replacing_file(replacing_file&&) noexcept = default;
  replacing_file& operator=(replacing_file&&) = delete;
  ~replacing_file();

  /// Appends all *pieces*, without a copy, in as few calls as the system
  /// allows.
  expected<void> write(const std::vector<std::span<const std::byte>>& pieces);

  /// Renames the file to its final name. The commit of the checkpoint makes it
  /// durable.
  expected<void> commit();

private:
  replacing_file(fs::path path, temporary_file temporary)
    : path_(std::move(path)), temporary_(std::move(temporary)) {}

  tl::unexpected<error> failed(int code) const;

  fs::path path_;
  temporary_file temporary_;
};

} // namespace troupe::internal
