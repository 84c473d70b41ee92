#include "troupe/runtime/process/peer_credentials.hpp"

#include <sys/socket.h>

#include "troupe/runtime/process/system_failure.hpp"

namespace troupe {

expected<peer_credentials> peer_of(int fd) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return system_failure(ec::protocol, "cannot tell whose socket it is");
  // What is not a connected Unix socket answers without a process.
  if (peer.pid == 0)
    return failure(ec::protocol,
                   "cannot tell whose socket it is: no process at its end");
  return peer_credentials{peer.pid, peer.uid, peer.gid};
}

} // namespace troupe
