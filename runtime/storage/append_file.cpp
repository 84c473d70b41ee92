#include "troupe/runtime/storage/append_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

expected<append_file> append_file::take(unique_fd file, fs::path path) {
  struct stat info {};
  if (::fstat(file.get(), &info) != 0)
    return tl::unexpected{storage_error("read", path, errno)};
  return append_file{std::move(file), std::move(path),
                     static_cast<std::uint64_t>(info.st_size)};
}

expected<append_file> append_file::open(const fs::path& path, int flags) {
  return open_file(path, open_flags() | flags, "open")
    .and_then([&](unique_fd file) { return take(std::move(file), path); });
}

int append_file::open_flags() noexcept {
  return O_RDWR | O_APPEND;
}

expected<void> append_file::append(std::string_view bytes) {
  if (surplus_ > 0)
    TROUPE_TRY_VOID(cut_surplus());
  for (auto left = bytes; !left.empty();) {
    auto count = uninterrupted(
      [&] { return ::write(file_.get(), left.data(), left.size()); });
    if (count < 0) {
      auto reason = storage_error("append to", path_, errno);
      surplus_ = bytes.size() - left.size();
      if (surplus_ > 0)
        (void) cut_surplus(); // or else before the next append
      return tl::unexpected{std::move(reason)};
    }
    left.remove_prefix(static_cast<std::size_t>(count));
  }
  size_ += bytes.size();
  return {};
}

void append_file::give_up(std::uint64_t size) noexcept {
  surplus_ += size_ - std::min(size, size_);
  size_ = std::min(size, size_);
}

expected<void> append_file::cut(std::uint64_t size) {
  give_up(size);
  return surplus_ > 0 ? cut_surplus() : expected<void>{};
}

expected<void> append_file::cut_surplus() {
  struct stat info {};
  if (::fstat(file_.get(), &info) != 0)
    return tl::unexpected{storage_error("read", path_, errno)};
  if (static_cast<std::uint64_t>(info.st_size) != size_ + surplus_)
    return failure(ec::storage,
                   path_.string()
                     + " was changed by someone else, so that what was "
                       "written last cannot be taken back");
  if (::ftruncate(file_.get(), static_cast<off_t>(size_)) != 0)
    return tl::unexpected{storage_error("cut back", path_, errno)};
  surplus_ = 0;
  return {};
}

expected<void> append_file::sync() const {
  if (uninterrupted([&] { return ::fdatasync(file_.get()); }) != 0)
    return tl::unexpected{storage_error("make durable", path_, errno)};
  return {};
}

expected<bool> append_file::is_in_place() const {
  return is_at(file_, path_);
}

expected<void> sync_latch::check(const fs::path& path) const {
  if (!failed_)
    return {};
  return failure(ec::storage,
                 path.string() + " is not durable: an earlier sync failed");
}

expected<void> may_write(const std::stop_token& over, const fs::path& path) {
  if (over.stop_requested())
    return failure(ec::stopped, "the run is over: nothing more is written to "
                                  + path.string());
  return {};
}

expected<void> rename_to_free(const fs::path& path,
                              const std::function<std::string(int)>& name_of) {
  for (int number = 1;; ++number) {
    auto done = rename_new(path, path.parent_path() / name_of(number));
    if (done || done.error().code != ec::conflict)
      return done;
  }
}

expected<record_file> record_file::open(const fs::path& path,
                                        const std::stop_token& over) {
  return open_with(O_CREAT, path, over);
}

expected<record_file> record_file::create(const fs::path& path,
                                          const std::stop_token& over) {
  return open_with(O_CREAT | O_EXCL, path, over);
}

expected<record_file> record_file::reopen(const fs::path& path,
                                          const std::stop_token& over) {
  return open_with(0, path, over);
}

expected<record_file> record_file::open_with(int flags, const fs::path& path,
                                             const std::stop_token& over) {
  TROUPE_TRY_VOID(may_write(over, path));
  TROUPE_TRY(auto file, append_file::open(path, flags));
  if (file.size() == 0)
    TROUPE_TRY_VOID(sync_folder(path.parent_path()));
  return record_file{std::move(file), over};
}

expected<record_file> record_file::open_new(const fs::path& path,
                                            const std::stop_token& over) {
  auto file = open(path, over);
  if (!file || file->size() == 0)
    return file;
  TROUPE_TRY_VOID(may_write(over, path));
  TROUPE_TRY_VOID(rename_to_free(path, [&](int number) {
    return concat(path.filename().string(), '.', number);
  }));
  TROUPE_TRY_VOID(sync_folder(path.parent_path()));
  return open(path, over);
}

expected<void> record_file::cut(std::uint64_t size) {
  if (size >= file_.size())
    return {};
  TROUPE_TRY_VOID(may_write(over_, path()));
  committed_ = std::min(committed_, size);
  return file_.cut(size);
}

void record_file::roll_back() {
  file_.give_up(committed_);
  if (may_write(over_, path()))
    (void) file_.cut(committed_); // on failure, before the next append
}

expected<void> record_file::append(std::string_view bytes) {
  auto done = may_write(over_, path());
  if (auto code = failpoint("record_file.append"); done && code != 0)
    done = tl::unexpected{storage_error("append to", path(), code)};
  if (done)
    done = file_.append(bytes);
  if (done)
    failpoint("record_file.appended");
  else
    roll_back();
  return done;
}

// After a failed fsync a later one may succeed without the lost pages: what was
// not confirmed is cut off and written again.
expected<void> record_file::commit() {
  if (file_.size() == committed_)
    return {};
  auto done = make_durable();
  if (done)
    committed_ = file_.size();
  else
    roll_back();
  failpoint("record_file.committed");
  return done;
}

expected<void> record_file::make_durable() const {
  TROUPE_TRY(auto in_place, file_.is_in_place());
  if (!in_place)
    return failure(ec::storage, path().string()
                                  + " was removed or replaced while it was "
                                    "written");
  if (auto code = failpoint("record_file.commit"))
    return tl::unexpected{storage_error("make durable", path(), code)};
  return file_.sync();
}

} // namespace troupe::internal
