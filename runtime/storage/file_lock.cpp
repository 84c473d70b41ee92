#include "troupe/runtime/storage/file_lock.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe::internal {

expected<bool> lock_file(const unique_fd& file, const fs::path& path, int how) {
  while (::flock(file.get(), how | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK)
      return false;
    if (errno != EINTR)
      return tl::unexpected{storage_error("lock", path, errno)};
  }
  return true;
}

expected<own_lock> own_lock::open(const held_folder& folder,
                                  const std::string& name, int flags,
                                  std::string_view action) {
  const fork_pause pause;
  return folder.open_file(name, flags, action).map([&pause](unique_fd file) {
    return own_lock{unshared_fd{std::move(file), pause}};
  });
}

own_lock& own_lock::operator=(own_lock&& other) noexcept {
  reset();
  file_ = std::move(other.file_);
  return *this;
}

void own_lock::reset() noexcept {
  if (!file_)
    return;
  ::flock(file_.get(), LOCK_UN);
  const fork_pause pause;
  file_.release(pause).reset();
}

expected<signed_lock> take_signed_lock(const held_folder& folder,
                                       const std::string& name,
                                       std::string_view owner) {
  constexpr std::size_t max_owner_bytes = 4096;
  TROUPE_TRY(auto lock, own_lock::open(folder, name, O_RDWR | O_CREAT, "open"));
  auto& file = lock.file();
  auto path = folder.path() / name;
  TROUPE_TRY(auto taken, lock_file(file, path));
  if (!taken)
    // Written after the lock was taken: a reader may find it empty.
    return signed_lock{
      {}, read_open_file(file, path, max_owner_bytes).value_or("")};
  if (::ftruncate(file.get(), 0) == 0)
    (void) !::pwrite(file.get(), owner.data(), owner.size(), 0);
  return signed_lock{std::move(lock), {}};
}

} // namespace troupe::internal
