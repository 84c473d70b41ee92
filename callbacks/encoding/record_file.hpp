#pragma once

#include <cstdint>
#include <stop_token>
#include <string_view>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/process/unique_fd.hpp"

namespace troupe {

/// `ec::stopped` once *over* was asked to stop: *path* may belong to another
/// driver of the run, and whatever was under way changes it no more.
expected<void> may_write(const std::stop_token& over, const fs::path& path);

/// A file that grows at its end by batches: all of a batch, or nothing of it.
///
/// What `commit` has confirmed survives a power cut. After any failure the file
/// is cut back to that, and the batch may be given again.
class record_file {
public:
  /// Opens the file *path*, or makes it and its name durable. What it holds
  /// counts as committed. Nothing is written or cut that `may_write` forbids.
  static expected<record_file> open(const fs::path& path,
                                    const std::stop_token& over = {});

  /// The same for a writer who has written nothing to it yet: a file that is
  /// not empty is kept as `<path>.1`, or the next number that is free.
  static expected<record_file> open_new(const fs::path& path,
                                        const std::stop_token& over = {});

  /// Cuts the file back to *size* bytes, if it is longer.
  expected<void> cut(std::uint64_t size);

  /// Writes *bytes* behind what is there. They count once committed.
  expected<void> append(std::string_view bytes);

  /// Makes all that was appended durable. Fails if the file is no longer the
  /// one at its path: no one finds what is written to it then.
  expected<void> commit();

  /// Cuts off what was appended since the last commit.
  void roll_back();

  /// Bytes that are committed.
  std::uint64_t size() const noexcept { return committed_; }
  const fs::path& path() const noexcept { return path_; }

private:
  record_file(unique_fd file, fs::path path, std::uint64_t size,
              std::stop_token over)
    : file_(std::move(file)), path_(std::move(path)), over_(std::move(over)),
      committed_(size), end_(size) {}

  expected<void> write(std::string_view bytes);
  expected<void> check_place() const;

  unique_fd file_;
  fs::path path_;
  std::stop_token over_;
  std::uint64_t committed_ = 0;
  std::uint64_t end_ = 0; // of what was appended
  bool torn_ = false;     // there may be more in the file than `end_` says
};

} // namespace troupe
