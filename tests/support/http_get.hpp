#pragma once

#include <cstdlib>
#include <optional>
#include <string>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal::test {

/// A free TCP port of the loopback interface.
inline int free_port() {
  unique_fd fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(fd.get(), generic, size) != 0
      || ::getsockname(fd.get(), generic, &size) != 0)
    return 0;
  return ntohs(address.sin_port);
}

struct http_reply {
  int status = 0;
  std::string body; ///< As received, including chunk sizes.
};

/// GET of *path* at 127.0.0.1; empty if no reply came within two seconds.
inline std::optional<http_reply> http_get(int port, const std::string& path) {
  unique_fd fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  timeval limit{2, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address),
                sizeof(address))
      != 0)
    return std::nullopt;
  auto request = "GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1:"
                 + std::to_string(port) + "\r\nConnection: close\r\n\r\n";
  if (::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0)
    return std::nullopt;
  std::string reply;
  char buffer[4096];
  for (ssize_t n; (n = ::recv(fd.get(), buffer, sizeof(buffer), 0)) > 0;)
    reply.append(buffer, static_cast<std::size_t>(n));
  auto end = reply.find("\r\n\r\n");
  if (!reply.starts_with("HTTP/1.") || end == reply.npos)
    return std::nullopt;
  return http_reply{std::atoi(reply.c_str() + 9), reply.substr(end + 4)};
}

} // namespace troupe::internal::test
