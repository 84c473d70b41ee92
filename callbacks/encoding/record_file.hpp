#pragma once

#include <cstdint>
#include <stop_token>
#include <string_view>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal {

/// `ec::stopped` once a stop is requested through *over*: *path* may then
/// belong to another driver of the run and must not be changed.
expected<void> may_write(const std::stop_token& over, const fs::path& path);

/// A file that grows by batches: a batch is appended completely or not at all.
///
/// What `commit` has confirmed survives a power cut. After a failure the file
/// is cut back to that, and the batch may be appended again.
class record_file {
public:
  /// Opens the file *path* or creates it durably. Its content counts as
  /// committed. Nothing is changed once `may_write` forbids it.
  static expected<record_file> open(const fs::path& path,
                                    const std::stop_token& over = {});

  /// The same for a file that must not exist yet.
  static expected<record_file> create(const fs::path& path,
                                      const std::stop_token& over = {});

  /// The same for a file that must exist.
  static expected<record_file> reopen(const fs::path& path,
                                      const std::stop_token& over = {});

  /// The same as `open` for a writer that has written nothing yet: a file that
  /// is not empty is renamed to `<path>.1`, or the next free number.
  static expected<record_file> open_new(const fs::path& path,
                                        const std::stop_token& over = {});

  /// Cuts the file back to *size* bytes, if it is longer.
  expected<void> cut(std::uint64_t size);

  /// Appends *bytes*, which count once committed.
  expected<void> append(std::string_view bytes);

  /// Makes everything appended durable. Fails if *path* names another file by
  /// now: no reader would find what is written to this one.
  expected<void> commit();

  /// Cuts off what was appended since the last commit.
  void roll_back();

  /// Committed bytes.
  std::uint64_t size() const noexcept { return committed_; }
  const fs::path& path() const noexcept { return path_; }

private:
  record_file(unique_fd file, fs::path path, std::uint64_t size,
              std::stop_token over)
    : file_(std::move(file)), path_(std::move(path)), over_(std::move(over)),
      committed_(size), end_(size) {}

  static expected<record_file> open_with(int flags, const fs::path& path,
                                         const std::stop_token& over);
  expected<void> write(std::string_view bytes);
  expected<void> check_place() const;

  unique_fd file_;
  fs::path path_;
  std::stop_token over_;
  std::uint64_t committed_ = 0;
  std::uint64_t end_ = 0; // of the appended bytes
  bool torn_ = false;     // the file may be longer than `end_`
};

} // namespace troupe::internal
