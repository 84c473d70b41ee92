#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <thread>
#include <vector>

#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal::test {

/// A TCP connection to *port* of 127.0.0.1, from 127.0.0.*host*.
inline unique_fd connect_to_port(std::uint16_t port, std::uint8_t host = 1) {
  unique_fd result{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + host);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if ((host != 1
       && ::bind(result.get(), reinterpret_cast<sockaddr*>(&own), sizeof(own))
            != 0)
      || ::connect(result.get(), reinterpret_cast<sockaddr*>(&address),
                   sizeof(address))
           != 0)
    result.reset();
  return result;
}

/// A listening TCP socket of 127.0.0.1 that is not a door.
class plain_listener {
public:
  explicit plain_listener(int backlog = 64) {
    socket_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    // A door may open at this port as soon as this listener is gone.
    const int on = 1;
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto generic = reinterpret_cast<sockaddr*>(&address);
    ::bind(socket_.get(), generic, size);
    ::listen(socket_.get(), backlog);
    ::getsockname(socket_.get(), generic, &size);
    port_ = ntohs(address.sin_port);
  }

  std::uint16_t port() const noexcept { return port_; }
  int descriptor() const noexcept { return socket_.get(); }

  unique_fd accept() const {
    return unique_fd{::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC)};
  }

private:
  unique_fd socket_;
  std::uint16_t port_ = 0;
};

/// Passes bytes between its port and a door, until it breaks a connection.
class breaking_relay {
public:
  explicit breaking_relay(std::uint16_t to) : to_(to) {
    thread_ = std::jthread{[this](std::stop_token stop) { run(stop); }};
  }

  std::uint16_t port() const { return listener_.port(); }

  /// Resets what is connected now.
  void break_all() { ++breaks_wanted_; }

  /// Ends what is connected now in good order, towards both sides, as a proxy
  /// does with connections that it finds idle.
  void close_all() { ++closes_wanted_; }

  /// From now on resets each connection that has passed that many bytes.
  void break_after(std::size_t bytes) { limit_ = bytes; }

  /// Connections that were reset or closed.
  int broken() const { return broken_; }

private:
  struct connection {
    unique_fd client;
    unique_fd server;
    std::size_t passed = 0; ///< Bytes, in both directions.
    bool is_closed = false; ///< By this relay.
  };

  void run(std::stop_token stop) {
    std::vector<connection> connected;
    for (auto breaks = 0, closes = 0; !stop.stop_requested();) {
      std::vector<pollfd> waits{{listener_.descriptor(), POLLIN, 0}};
      for (auto& x : connected)
        for (auto fd : {x.client.get(), x.server.get()})
          waits.push_back({fd, POLLIN, 0});
      ::poll(waits.data(), waits.size(), 1);
      std::erase_if(connected, [](connection& x) {
        return !pass(x, x.client, x.server) || !pass(x, x.server, x.client);
      });
      if (waits.front().revents != 0) {
        connected.push_back({listener_.accept(), connect_to_port(to_)});
        const int on = 1;
        for (auto fd :
             {connected.back().client.get(), connected.back().server.get()})
          ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      }
      if (closes_wanted_ > closes) {
        ++closes;
        broken_ += static_cast<int>(connected.size());
        for (auto& x : connected)
          close(x);
      }
      auto all = breaks_wanted_ > breaks;
      breaks += all ? 1 : 0;
      broken_ +=
        static_cast<int>(std::erase_if(connected, [this, all](connection& x) {
          auto is_due = all || (limit_ > 0 && x.passed >= limit_);
          if (is_due)
            reset(x);
          return is_due;
        }));
    }
  }

  static void reset(connection& x) {
    const linger at_once{1, 0};
    for (auto fd : {x.client.get(), x.server.get()})
      ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  }

  /// What still comes is read, so that nothing is reset.
  static void close(connection& x) {
    x.is_closed = true;
    for (auto fd : {x.client.get(), x.server.get()})
      ::shutdown(fd, SHUT_WR);
  }

  /// False: one side has closed.
  static bool pass(connection& x, const unique_fd& from, const unique_fd& to) {
    char buffer[64 * 1024];
    auto size = ::recv(from.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (size < 0)
      return errno == EAGAIN;
    if (x.is_closed)
      return size > 0;
    auto bytes = static_cast<std::size_t>(size);
    x.passed += bytes;
    return size > 0 && ::send(to.get(), buffer, bytes, MSG_NOSIGNAL) == size;
  }

  std::uint16_t to_;
  plain_listener listener_;
  std::atomic<int> breaks_wanted_ = 0;
  std::atomic<int> closes_wanted_ = 0;
  std::atomic<int> broken_ = 0;
  std::atomic<std::size_t> limit_ = 0; ///< 0: none
  std::jthread thread_;
};

} // namespace troupe::internal::test
