#pragma once

#include <sys/types.h>

#include "troupe/runtime/error.hpp"

namespace troupe {

/// Who is at the other end of a Unix socket.
struct peer_credentials {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
};

/// Asks the kernel about the peer of the connected Unix socket *fd*;
/// `ec::protocol` if it is none.
expected<peer_credentials> peer_of(int fd);

} // namespace troupe
