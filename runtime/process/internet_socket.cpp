#include "troupe/runtime/process/internet_socket.hpp"

#include <linux/tcp.h>
#include <netdb.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// How many addresses of a name are tried: no answer of DNS makes us open more
/// connections.
constexpr std::size_t max_endpoints = 8;

constexpr auto socket_flags = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

using name_function = int (*)(int, sockaddr*, socklen_t*);

std::optional<endpoint> end_of(int socket, name_function name) noexcept {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (name(socket, generic, &size) != 0)
    return std::nullopt;
  return endpoint{generic, size};
}

ec code_of_listen(int problem) noexcept {
  return problem == EADDRINUSE      ? ec::conflict
         : problem == EADDRNOTAVAIL ? ec::invalid_config
                                    : ec::spawn;
}

} // namespace

endpoint::endpoint(const sockaddr* address, socklen_t size) noexcept
  : size_(std::min<socklen_t>(size, sizeof(address_))) {
  std::memcpy(&address_, address, size_);
}

endpoint endpoint::any(int family, std::uint16_t port) noexcept {
  sockaddr_in6 all{}; // The port is the second field of both families.
  all.sin6_family = static_cast<sa_family_t>(family);
  all.sin6_port = htons(port);
  const socklen_t size =
    family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  return {reinterpret_cast<const sockaddr*>(&all), size};
}

std::optional<endpoint> endpoint::local(int socket) noexcept {
  return end_of(socket, ::getsockname);
}

std::optional<endpoint> endpoint::remote(int socket) noexcept {
  return end_of(socket, ::getpeername);
}

std::uint16_t endpoint::port() const noexcept {
  sockaddr_in6 x{};
  std::memcpy(&x, &address_, sizeof(x));
  return ntohs(x.sin6_port);
}

std::string endpoint::text() const {
  char text[NI_MAXHOST];
  if (::getnameinfo(get(), size_, text, sizeof(text), nullptr, 0,
                    NI_NUMERICHOST)
      != 0)
    return {};
  std::string_view result = text;
  constexpr std::string_view mapped = "::ffff:";
  if (result.starts_with(mapped) && result.find('.') != result.npos)
    result.remove_prefix(mapped.size());
  return std::string{result};
}

endpoint::bytes_type endpoint::bytes() const noexcept {
  sockaddr_in6 x{};
  std::memcpy(&x, &address_, sizeof(x)); // The port is at the same place.
  if (family() == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &address_, sizeof(v4));
    x.sin6_addr = in6_addr{};
    x.sin6_addr.s6_addr[10] = x.sin6_addr.s6_addr[11] = 0xff;
    std::memcpy(&x.sin6_addr.s6_addr[12], &v4.sin_addr, sizeof(v4.sin_addr));
  }
  bytes_type result;
  std::memcpy(result.data(), &x.sin6_addr, sizeof(x.sin6_addr));
  std::memcpy(result.data() + sizeof(x.sin6_addr), &x.sin6_port,
              sizeof(x.sin6_port));
  return result;
}

expected<std::vector<endpoint>> resolve(const std::string& host,
                                        std::uint16_t port, host_kind kind) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags =
    AI_NUMERICSERV | (kind == host_kind::number ? AI_NUMERICHOST : 0);
  addrinfo* list = nullptr;
  // An empty name would be this host.
  auto problem =
    host.empty()
      ? EAI_NONAME
      : ::getaddrinfo(host.c_str(), concat(port).c_str(), &hints, &list);
  if (problem != 0)
    return failure(ec::invalid_config, ::gai_strerror(problem));
  std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner{list,
                                                             ::freeaddrinfo};
  std::vector<endpoint> result;
  for (auto* i = list; i != nullptr && result.size() < max_endpoints;
       i = i->ai_next)
    result.emplace_back(i->ai_addr, i->ai_addrlen);
  return result;
}

tl::expected<unique_fd, int> begin_connect(const endpoint& to) {
  unique_fd socket{::socket(to.family(), socket_flags, 0)};
  if (!socket
      || (::connect(socket.get(), to.get(), to.size()) != 0
          && errno != EINPROGRESS))
    return tl::unexpected{errno};
  return socket;
}

int connect_error(int socket) {
  int problem = 0;
  socklen_t size = sizeof(problem);
  ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &problem, &size);
  return problem;
}

void watch_connection(int socket, const connection_watch& x) {
  auto set = [socket](int level, int name, int value) {
    ::setsockopt(socket, level, name, &value, sizeof(value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, x.interval_s);
  set(IPPROTO_TCP, TCP_KEEPINTVL, x.interval_s);
  set(IPPROTO_TCP, TCP_KEEPCNT, x.probes);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, x.unacknowledged_ms);
}

expected<listening_socket> listen_at(const endpoint& where, int backlog,
                                     std::string what) {
  unique_fd socket{::socket(where.family(), socket_flags, 0)};
  const int on = 1;
  const int off = 0;
  if (socket && where.family() == AF_INET6)
    ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  if (!socket
      || ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on))
           != 0
      || ::bind(socket.get(), where.get(), where.size()) != 0
      || ::listen(socket.get(), backlog) != 0)
    return system_failure(code_of_listen(errno), std::move(what));
  auto own = endpoint::local(socket.get());
  if (!own)
    return system_failure(ec::spawn, std::move(what));
  return listening_socket{std::move(socket), own->port()};
}

std::size_t choose_leaver(std::span<const unknown_caller> all) {
  auto weight = [&all](const unknown_caller& x) {
    auto same = std::ranges::count(all, x.address, &unknown_caller::address);
    return std::pair{same, x.is_silent};
  };
  // The first of those that weigh most.
  auto leaver = std::ranges::max_element(all, {}, weight);
  return static_cast<std::size_t>(leaver - all.begin());
}

} // namespace troupe::internal
