#include "troupe/actors/transport/byte_link.hpp"

#include <cerrno>

#include <sys/socket.h>

#include "troupe/runtime/process/would_block.hpp"

namespace troupe::internal {

std::optional<std::size_t> socket_link::receive(std::span<std::byte> buffer) {
  auto n = ::recv(fd_, buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (n < 0 && is_temporary(errno))
    return 0;
  was_closed_ = n == 0;
  if (n <= 0)
    return std::nullopt;
  return static_cast<std::size_t>(n);
}

std::optional<std::size_t> socket_link::send(std::span<const std::byte> bytes) {
  auto n = uninterrupted([&] {
    return ::send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  });
  if (n < 0 && would_block(errno))
    return 0;
  if (n < 0)
    return std::nullopt;
  return static_cast<std::size_t>(n);
}

void socket_link::finish() noexcept {
  ::shutdown(fd_, SHUT_WR);
}

} // namespace troupe::internal
