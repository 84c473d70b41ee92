#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "troupe/callbacks/http/http_server.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal {

/// Serves one page on its own thread, to GET and HEAD; see `http_server`.
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

  /// Fails with `ec::invalid_config` if *address* is not an IPv4 address, with
  /// `ec::conflict` if the port is taken.
  static expected<std::unique_ptr<page_server>>
  start(const std::string& address, std::uint16_t port, page what);

  ~page_server();

  page_server(const page_server&) = delete;
  page_server& operator=(const page_server&) = delete;

  /// `127.0.0.1:9099`
  const std::string& address() const noexcept { return server_.address(); }

private:
  page_server(http_server server, wake_event stop);

  void run();

  http_server server_;
  wake_event stop_;
  std::thread thread_;
};

} // namespace troupe::internal
