#include "troupe/runtime/storage/file_lock.hpp"

#include <cerrno>

#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe {

expected<bool> lock_file(const unique_fd& file, const fs::path& path, int how) {
  while (::flock(file.get(), how | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK)
      return false;
    if (errno != EINTR)
      return tl::unexpected{storage_error("lock", path, errno)};
  }
  return true;
}

void unlock_file(unique_fd& file) {
  if (file)
    ::flock(file.get(), LOCK_UN);
  file.reset();
}

} // namespace troupe
