#include "troupe/runtime/run/run_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>

#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe {

namespace {

std::string host_name() {
  utsname host{};
  return ::uname(&host) == 0 ? host.nodename : "unknown host";
}

// The lock file says who holds it. It is written after the lock was taken, so a
// reader may find it empty.
std::string holder_of(const fs::path& lock) {
  auto text = read_file(lock, 4096);
  return text && !text->empty() ? *text : "another process";
}

expected<unique_fd> take_lock(const fs::path& path) {
  auto file = open_file(path, O_RDWR | O_CREAT, "open");
  if (!file)
    return file;
  while (::flock(file->get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK)
      return failure(ec::conflict, "the run " + path.parent_path().string()
                                     + " is held by " + holder_of(path));
    if (errno != EINTR)
      return tl::unexpected{storage_error("lock", path, errno)};
  }
  auto me = "pid " + std::to_string(::getpid()) + " on " + host_name();
  if (::ftruncate(file->get(), 0) != 0
      || ::pwrite(file->get(), me.data(), me.size(), 0) < 0)
    return tl::unexpected{storage_error("write", path, errno)};
  return file;
}

} // namespace

expected<run_folder> run_folder::open(const fs::path& storage_path,
                                      const std::string& name) {
  auto path = storage_path / name;
  if (auto ok = make_folders(path); !ok)
    return tl::unexpected{ok.error()};
  auto lock = take_lock(path / "lock");
  if (!lock)
    return tl::unexpected{lock.error()};
  run_folder result{std::move(path), std::move(*lock)};
  for (auto& folder : {result.checkpoints(), result.logs(), result.sinks()})
    if (auto ok = make_folders(folder); !ok)
      return tl::unexpected{ok.error()};
  return result;
}

} // namespace troupe
