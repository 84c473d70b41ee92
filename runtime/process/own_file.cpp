#include "troupe/runtime/process/own_file.hpp"

#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>

#include "troupe/runtime/process/system_failure.hpp"

namespace troupe {

expected<unique_fd> open_own_file(int above, const char* name, int flags,
                                  ec code, std::string what) {
  int fd = -1;
  do {
    fd =
      ::openat(above, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
  } while (fd < 0 && errno == EINTR);
  unique_fd file{fd};
  struct stat found {};
  auto problem = !file || ::fstat(fd, &found) != 0 ? errno : 0;
  if (problem == ELOOP)
    return failure(code, what
                           + ": it is a symbolic link, and what Troupe "
                             "writes never is");
  if (problem == ENXIO // a pipe that no one reads
      || (problem == 0 && !S_ISREG(found.st_mode)))
    return failure(code, what + ": it is not a file");
  if (problem != 0)
    return system_failure(code, std::move(what), problem);
  // Who gets it as standard output does not expect a write that would block.
  ::fcntl(file.get(), F_SETFL, flags & O_APPEND);
  return file;
}

} // namespace troupe
