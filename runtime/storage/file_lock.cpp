#include "troupe/runtime/storage/file_lock.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <vector>

#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe::internal {

namespace {

/// The files of all `own_lock`s of this process.
struct own_files {
  std::mutex mutex;
  std::vector<int> numbers;
};

/// Never destroyed: a program may fork until its end.
own_files& files() {
  static auto instance = new own_files;
  return *instance;
}

// Only what is safe in a child of several threads. The numbers stay in use:
// copies of their owners in the child may still close them.
void drop_locks() noexcept {
  auto code = errno;
  auto& all = files();
  int null = -1;
  for (auto x : all.numbers) {
    ::close(x); // First: the child may have no other number free.
    if (null < 0)
      null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0 && null != x)
      ::dup3(null, x, O_CLOEXEC);
  }
  if (null >= 0 && null != all.numbers.front())
    ::close(null);
  all.numbers.clear();
  all.mutex.unlock();
  errno = code;
}

void watch_forks() {
  static const auto failed = ::pthread_atfork(
    [] { files().mutex.lock(); }, [] { files().mutex.unlock(); }, drop_locks);
  (void) failed; // Without memory: children keep the locks until they end.
}

} // namespace

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
  watch_forks();
  std::lock_guard guard{files().mutex};
  return folder.open_file(name, flags, action).map([](unique_fd file) {
    files().numbers.push_back(file.get());
    return own_lock{std::move(file)};
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
  // Together: no fork in between may leave the lock to a child, nor take the
  // number for another file's.
  std::lock_guard guard{files().mutex};
  std::erase(files().numbers, file_.get());
  ::flock(file_.get(), LOCK_UN);
  file_.reset();
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
