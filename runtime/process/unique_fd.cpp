#include "troupe/runtime/process/unique_fd.hpp"

#include <fcntl.h>
#include <unistd.h>

#include "troupe/runtime/process/system_failure.hpp"

namespace troupe {

void unique_fd::reset(int fd) noexcept {
  if (fd_ >= 0)
    ::close(fd_);
  fd_ = fd;
}

expected<unique_fd> duplicate(int fd) {
  unique_fd result{::fcntl(fd, F_DUPFD_CLOEXEC, 0)};
  if (!result)
    return system_failure(ec::spawn,
                          "cannot duplicate descriptor " + std::to_string(fd));
  return result;
}

} // namespace troupe
