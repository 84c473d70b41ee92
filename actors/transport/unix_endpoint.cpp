#include "troupe/actors/transport/unix_endpoint.hpp"

#include <cerrno>
#include <cstring>
#include <ctime>
#include <string>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// Holds a thousand ranks that connect at once; the kernel may lower it.
constexpr int backlog = 4096;

expected<sockaddr_un> address_of(const fs::path& path) {
  sockaddr_un result{};
  result.sun_family = AF_UNIX;
  constexpr auto limit = sizeof(result.sun_path) - 1;
  if (path.native().size() > limit)
    return failure(ec::invalid_config,
                   concat("the socket path ", path.string(), " is longer than ",
                          limit, " bytes"));
  std::memcpy(result.sun_path, path.c_str(), path.native().size());
  return result;
}

expected<void> check_folder(const fs::path& folder) {
  struct stat facts;
  if (stat(folder.c_str(), &facts) != 0)
    return system_failure(ec::storage, "the socket folder " + folder.string());
  if (facts.st_uid != geteuid() || (facts.st_mode & 077) != 0)
    return failure(ec::invalid_config, "the socket folder " + folder.string()
                                         + " is open to other users");
  return {};
}

/// The right to open sockets in *folder*, while the result exists. Empty on a
/// file system without locks.
expected<unique_fd> lock_folder(const fs::path& folder) {
  auto fd =
    unique_fd{::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (!fd)
    return system_failure(ec::storage, "the socket folder " + folder.string());
  // Held for a few system calls, unless its holder is stopped.
  constexpr int tries = 100;
  constexpr timespec pause{0, 10'000'000};
  for (int i = 0; i < tries; ++i) {
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0)
      return fd;
    if (errno != EWOULDBLOCK)
      return unique_fd{};
    ::nanosleep(&pause, nullptr);
  }
  return failure(ec::conflict, "another process holds the socket folder "
                                 + folder.string() + " locked");
}

/// Whether no process listens on the socket at *address*.
bool is_left_behind(const sockaddr_un& address) {
  struct stat facts;
  if (::lstat(address.sun_path, &facts) != 0 || !S_ISSOCK(facts.st_mode))
    return false;
  auto fd =
    unique_fd{socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  auto generic = reinterpret_cast<const sockaddr*>(&address);
  return fd && ::connect(fd.get(), generic, sizeof(address)) != 0
         && errno == ECONNREFUSED;
}

/// Limits how long `connect` waits for room in the listener's backlog.
void limit_waiting(int socket, std::chrono::milliseconds timeout) {
  timeval limit{};
  limit.tv_sec = timeout.count() / 1000;
  limit.tv_usec = timeout.count() % 1000 * 1000;
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

} // namespace

expected<unique_fd> listen_at(const fs::path& path) {
  TROUPE_TRY(auto address, address_of(path));
  auto folder = path.has_parent_path() ? path.parent_path() : fs::path{"."};
  TROUPE_TRY_VOID(check_folder(folder));
  auto fd =
    unique_fd{socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!fd)
    return system_failure(ec::storage, "no socket for " + path.string());
  // Set before bind, this becomes the mode of the file.
  fchmod(fd.get(), 0600);
  // Under the lock no process is between its bind and its listen: a socket that
  // refuses connections has no process.
  TROUPE_TRY(auto lock, lock_folder(folder));
  auto generic = reinterpret_cast<const sockaddr*>(&address);
  auto failed = bind(fd.get(), generic, sizeof(address)) != 0;
  if (failed && errno == EADDRINUSE && lock && is_left_behind(address)) {
    ::unlink(address.sun_path);
    failed = bind(fd.get(), generic, sizeof(address)) != 0;
  }
  if (failed)
    return system_failure(errno == EADDRINUSE ? ec::conflict : ec::storage,
                          "the socket " + path.string());
  if (listen(fd.get(), backlog) != 0)
    return system_failure(ec::storage, "the socket " + path.string());
  return fd;
}

expected<unique_fd> connect_to(const fs::path& path,
                               std::chrono::milliseconds timeout) {
  TROUPE_TRY(auto address, address_of(path));
  auto fd = unique_fd{socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  if (!fd)
    return system_failure(ec::storage, "no socket for " + path.string());
  limit_waiting(fd.get(), timeout);
  auto generic = reinterpret_cast<const sockaddr*>(&address);
  auto result = uninterrupted(
    [&] { return ::connect(fd.get(), generic, sizeof(address)); });
  if (result != 0 && errno == EAGAIN)
    return failure(ec::timeout,
                   concat("no process accepts connections at the socket ",
                          path.string(), " within ", duration_text(timeout)));
  if (result != 0)
    return system_failure(ec::protocol,
                          "no process listens on the socket " + path.string());
  if (!is_own_peer(fd.get()))
    return failure(ec::protocol,
                   "the socket " + path.string() + " belongs to another user");
  return fd;
}

bool is_own_peer(int fd) {
  auto peer = peer_of(fd);
  return peer && peer->uid == geteuid();
}

} // namespace troupe::internal
