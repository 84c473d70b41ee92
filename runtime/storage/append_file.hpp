#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal {

/// A file that grows at its end: the journal, and below the files of trackers.
///
/// Bytes are appended completely or not at all. It is written with `O_APPEND`,
/// so that what two writers add (one that was ousted and does not know yet)
/// never overlaps.
class append_file {
public:
  append_file() = default;

  /// Takes over *file*, opened with `open_flags`, which lies at *path*.
  static expected<append_file> take(unique_fd file, fs::path path);

  /// Opens the file *path*, which must exist unless *flags* say otherwise.
  static expected<append_file> open(const fs::path& path, int flags = 0);

  static int open_flags() noexcept;

  /// Appends *bytes*, with one system call unless the file system accepts only
  /// a part. What a failure leaves of them is cut off, at once or before the
  /// next append.
  expected<void> append(std::string_view bytes);

  /// Gives up all but the first *size* bytes: the next `cut` or `append`
  /// removes the others.
  void give_up(std::uint64_t size) noexcept;

  /// Cuts the file back to *size* bytes, if it is longer. Fails if someone else
  /// has appended to the file: it would be cut off, too.
  expected<void> cut(std::uint64_t size);

  /// Makes everything appended before the call durable. May run concurrently
  /// with the other calls. After a failure the data is not known to be durable,
  /// whatever a later call says.
  expected<void> sync() const;

  /// Whether the file is still the one at its path: no reader would find what
  /// is written to another one. May run concurrently with the other calls.
  expected<bool> is_in_place() const;

  /// Bytes in the file, without those given up.
  std::uint64_t size() const noexcept { return size_; }
  const fs::path& path() const noexcept { return path_; }

private:
  append_file(unique_fd file, fs::path path, std::uint64_t size)
    : file_(std::move(file)), path_(std::move(path)), size_(size) {}

  expected<void> cut_surplus();

  unique_fd file_;
  fs::path path_;
  std::uint64_t size_ = 0;
  std::uint64_t surplus_ = 0; // bytes behind `size_` to be cut off
};

/// Makes a failed sync of a file final: a later one may succeed without what
/// the failed one has lost. All calls may come from any thread.
class sync_latch {
public:
  bool failed() const noexcept { return failed_; }

  /// Fails once a sync of the file *path* has failed.
  expected<void> check(const fs::path& path) const;

  /// Returns what *sync* does, which makes the file *path* durable. Does not
  /// call it, and fails, once one has failed.
  template <class Sync>
  expected<void> pass(const fs::path& path, Sync sync) {
    TROUPE_TRY_VOID(check(path));
    expected<void> done = sync();
    if (!done)
      failed_ = true;
    return done;
  }

private:
  std::atomic<bool> failed_ = false;
};

/// `ec::stopped` once a stop is requested through *over*: *path* may then
/// belong to another driver of the run and must not be changed.
expected<void> may_write(const std::stop_token& over, const fs::path& path);

/// Renames *path* to the first of the names `name_of(1)`, `name_of(2)`, … that
/// is free in its folder. The new name is not durable.
expected<void> rename_to_free(const fs::path& path,
                              const std::function<std::string(int)>& name_of);

/// A tracker's file, which grows by batches: a batch is there completely or not
/// at all.
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
  /// now.
  expected<void> commit();

  /// Committed bytes.
  std::uint64_t size() const noexcept { return committed_; }
  const fs::path& path() const noexcept { return file_.path(); }

private:
  record_file(append_file file, std::stop_token over)
    : file_(std::move(file)), over_(std::move(over)), committed_(file_.size()) {
  }

  static expected<record_file> open_with(int flags, const fs::path& path,
                                         const std::stop_token& over);
  expected<void> make_durable() const;
  void roll_back();

  append_file file_;
  std::stop_token over_;
  std::uint64_t committed_ = 0;
};

} // namespace troupe::internal
