#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal {

/// Serves one page over HTTP/1.1 on its own thread.
///
/// Answers GET and HEAD. Refuses requests of more than 8 KiB and drops clients
/// that send or read too slowly. Accepts at most 32 connections, each for one
/// request. Without a free descriptor, clients wait until there is one.
///
/// At a loopback address it refuses requests whose `Host` is a name other than
/// `localhost`: a web page could map its own name to this address (DNS
/// rebinding) and make a browser on this host read the page.
class page_server {
public:
  struct page {
    std::string path; ///< `/metrics`
    std::string content_type;
    /// Called on the server's thread. An exception becomes a reply of status
    /// 500.
    std::function<std::string()> make;
    /// Time for a client to send its request, and again to read the reply.
    std::chrono::milliseconds patience{5000};
  };

  static constexpr std::size_t max_request = 8 * 1024;
  static constexpr std::size_t max_connections = 32;

  /// Fails with `ec::invalid_config` if *address* is not an IPv4 address, with
  /// `ec::conflict` if the port is taken.
  static expected<std::unique_ptr<page_server>>
  start(const std::string& address, std::uint16_t port, page what);

  ~page_server();

  page_server(const page_server&) = delete;
  page_server& operator=(const page_server&) = delete;

  /// `127.0.0.1:9099`
  const std::string& address() const noexcept { return address_; }

private:
  using clock = std::chrono::steady_clock;

  struct connection {
    unique_fd socket;
    clock::time_point deadline;
    std::string input;
    std::string output;    ///< The rest of the reply.
    bool answered = false; ///< All is sent; the client must close.
  };

  page_server(unique_fd listener, unique_fd stop, std::string address,
              bool loopback, page what);

  void run();
  void accept_one();
  /// Whether the connection stays open.
  bool serve(connection& x);
  bool is_for_us(const std::string& request) const;
  std::string reply_to(const std::string& request) const;

  unique_fd listener_;
  unique_fd stop_;
  std::string address_;
  bool loopback_;
  page page_;
  clock::time_point next_accept_; ///< No earlier, after a failure.
  std::vector<connection> connections_;
  std::thread thread_;
};

} // namespace troupe::internal
