#include "troupe/callbacks/encoding/record_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

// Renames *path* to the first free name of `<path>.1`, `<path>.2`, …
expected<void> set_aside(const fs::path& path) {
  for (int number = 1;; ++number) {
    auto kept = path;
    kept += concat('.', number);
    auto done = rename_new(path, kept);
    if (done || done.error().code != ec::conflict)
      return done.and_then([&] { return sync_folder(path.parent_path()); });
  }
}

} // namespace

expected<void> may_write(const std::stop_token& over, const fs::path& path) {
  if (over.stop_requested())
    return failure(ec::stopped, "the run is over: nothing more is written to "
                                  + path.string());
  return {};
}

expected<record_file> record_file::open(const fs::path& path,
                                        const std::stop_token& over) {
  return open_with(O_RDWR | O_CREAT, path, over);
}

expected<record_file> record_file::create(const fs::path& path,
                                          const std::stop_token& over) {
  return open_with(O_RDWR | O_CREAT | O_EXCL, path, over);
}

expected<record_file> record_file::reopen(const fs::path& path,
                                          const std::stop_token& over) {
  return open_with(O_RDWR, path, over);
}

expected<record_file> record_file::open_with(int flags, const fs::path& path,
                                             const std::stop_token& over) {
  TROUPE_TRY_VOID(may_write(over, path));
  TROUPE_TRY(auto file, open_file(path, flags, "open"));
  struct stat info {};
  if (::fstat(file.get(), &info) != 0)
    return tl::unexpected{storage_error("read", path, errno)};
  if (info.st_size == 0)
    TROUPE_TRY_VOID(sync_folder(path.parent_path()));
  return record_file{std::move(file), path,
                     static_cast<std::uint64_t>(info.st_size), over};
}

expected<record_file> record_file::open_new(const fs::path& path,
                                            const std::stop_token& over) {
  auto file = open(path, over);
  if (!file || file->size() == 0)
    return file;
  return may_write(over, path)
    .and_then([&] { return set_aside(path); })
    .and_then([&] { return open(path, over); });
}

expected<void> record_file::cut(std::uint64_t size) {
  size = std::min(size, end_);
  if (size == end_ && !torn_)
    return {};
  TROUPE_TRY_VOID(may_write(over_, path_));
  if (::ftruncate(file_.get(), static_cast<off_t>(size)) != 0)
    return tl::unexpected{storage_error("cut back", path_, errno)};
  torn_ = false;
  committed_ = end_ = size;
  return {};
}

void record_file::roll_back() {
  torn_ = torn_ || end_ > committed_;
  end_ = committed_;
  (void) cut(committed_); // on failure, before the next append
}

expected<void> record_file::append(std::string_view bytes) {
  auto done = torn_ ? cut(committed_) : may_write(over_, path_);
  if (done)
    done = write(bytes);
  if (!done)
    roll_back();
  return done;
}

// One system call, unless the file system accepts only a part.
expected<void> record_file::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto planned = failpoint("record_file.append");
    const auto count = planned != 0
                         ? -1
                         : ::pwrite(file_.get(), bytes.data(), bytes.size(),
                                    static_cast<off_t>(end_));
    const auto code = planned != 0 ? planned : errno;
    if (count < 0 && code == EINTR)
      continue;
    if (count < 0)
      return tl::unexpected{storage_error("append to", path_, code)};
    end_ += static_cast<std::uint64_t>(count);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  failpoint("record_file.appended");
  return {};
}

expected<void> record_file::check_place() const {
  struct stat ours {
  }, found{};
  if (::fstat(file_.get(), &ours) != 0)
    return tl::unexpected{storage_error("read", path_, errno)};
  if (::stat(path_.c_str(), &found) != 0)
    return tl::unexpected{storage_error("find", path_, errno)};
  if (found.st_ino != ours.st_ino || found.st_dev != ours.st_dev)
    return failure(ec::storage,
                   path_.string() + " was replaced while it was written");
  return {};
}

// After a failed fsync a later one may succeed without the lost pages: what was
// not confirmed is cut off and written again.
expected<void> record_file::commit() {
  if (end_ == committed_)
    return {};
  auto done = check_place();
  if (done) {
    auto code = failpoint("record_file.commit");
    while (code == 0 && ::fdatasync(file_.get()) != 0)
      code = errno == EINTR ? 0 : errno;
    if (code != 0)
      done = tl::unexpected{storage_error("make durable", path_, code)};
  }
  if (done)
    committed_ = end_;
  else
    roll_back();
  failpoint("record_file.committed");
  return done;
}

} // namespace troupe::internal
