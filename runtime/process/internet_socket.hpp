#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal {

/// An address of IPv4 or IPv6 with its port.
class endpoint {
public:
  endpoint() noexcept = default;

  endpoint(const sockaddr* address, socklen_t size) noexcept;

  /// Every address of this host; *family* is `AF_INET` or `AF_INET6`, which has
  /// IPv4, too.
  static endpoint any(int family, std::uint16_t port) noexcept;

  /// Either end of *socket*, if it has one.
  static std::optional<endpoint> local(int socket) noexcept;
  static std::optional<endpoint> remote(int socket) noexcept;

  int family() const noexcept { return address_.ss_family; }
  std::uint16_t port() const noexcept;

  /// Without the port, such as "10.0.0.7" or "fe80::1%eth0". An address of IPv4
  /// in an IPv6 socket is shown as IPv4.
  std::string text() const;

  /// The address as one of IPv6, and the port: the same on all hosts.
  using bytes_type = std::array<std::byte, 18>;
  bytes_type bytes() const noexcept;

  const sockaddr* get() const noexcept {
    return reinterpret_cast<const sockaddr*>(&address_);
  }

  socklen_t size() const noexcept { return size_; }

private:
  sockaddr_storage address_{};
  socklen_t size_ = 0;
};

/// What *host* may be for `resolve`.
enum class host_kind {
  number, ///< An address only: /etc/hosts may say 127.0.1.1 of a name.
  any,    ///< Also a name: resolving it takes as long as the resolver likes.
};

/// The first endpoints of *host*, at most 8; at least one. Fails with
/// `ec::invalid_config` and the resolver's words.
expected<std::vector<endpoint>> resolve(const std::string& host,
                                        std::uint16_t port, host_kind kind);

/// A socket that connects to *to*: writable once it is connected or has failed,
/// as `connect_error` says. Fails with the system's error number.
tl::expected<unique_fd, int> begin_connect(const endpoint& to);

/// The system's error number if *socket*, of `begin_connect`, could not
/// connect; 0 if it is connected.
int connect_error(int socket);

/// How the kernel watches a connection.
struct connection_watch {
  int interval_s; ///< Between probes of an idle connection, at least 1.
  int probes;     ///< Without an answer, these end the connection.
  /// How long what was sent may stay unacknowledged; 0: the system's default.
  int unacknowledged_ms = 0;
};

/// Has the kernel watch *socket*, and send small messages at once.
void watch_connection(int socket, const connection_watch& x);

struct listening_socket {
  unique_fd socket;
  std::uint16_t port = 0; ///< Also if any was asked for.
};

/// Listens at *where*, with port 0 at a free port; at most *backlog* clients
/// wait in the kernel's queue. Fails with `ec::conflict` if the port is taken,
/// `ec::invalid_config` if the address is not of this host, `ec::spawn`
/// otherwise, and with "<what>: <the system's words>".
expected<listening_socket> listen_at(const endpoint& where, int backlog,
                                     std::string what);

/// A connection whose other side has not shown yet who it is.
struct unknown_caller {
  std::string_view address;
  bool is_silent = false; ///< It has sent nothing so far.
};

/// Which of *all*, the oldest first, is closed if there is no place for another
/// one: of the address that has the most, the oldest that is silent, else the
/// oldest. So a flood from one address closes only its own connections, unless
/// each of the others has as many. *all* has one at least.
std::size_t choose_leaver(std::span<const unknown_caller> all);

} // namespace troupe::internal
