#pragma once

#include <algorithm>
#include <cctype>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/socket.h>

#include "tests/support/tcp.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal::test {

struct loopback_request {
  std::string method;
  std::string target;                         ///< Path and query, as sent.
  std::map<std::string, std::string> headers; ///< Names in lower case.
  std::string body;
  int connection = 0; ///< Counts connections from 0 on.
};

/// What goes wrong with a reply. The handler has run by then: its effects stay.
enum class reply_fault {
  none,
  close,     ///< Closes the connection without a byte.
  reset,     ///< Resets the connection without a byte.
  hang,      ///< Never replies.
  truncated, ///< Sends half of the body and closes the connection.
  slow_body, ///< Sends the head, then a byte of the body every 0.1 s.
};

struct loopback_reply {
  int status = 200;
  std::string body = "{}";
  std::map<std::string, std::string> headers{
    {"Content-Type", "application/json"}};
  reply_fault fault = reply_fault::none;
  std::chrono::milliseconds delay{0};
};

/// A real HTTP/1.1 server on a free port of 127.0.0.1 whose handler decides
/// each reply, including its faults.
///
/// The handler runs on the connection's thread, one call at a time.
class loopback_server {
public:
  using handler_type = std::function<loopback_reply(const loopback_request&)>;

  explicit loopback_server(handler_type handler)
    : handler_(std::move(handler)) {
    acceptor_ = std::thread{[this] { accept_all(); }};
  }

  ~loopback_server() {
    {
      std::lock_guard guard{mutex_};
      stopping_ = true;
      stopped_.notify_all();
      ::shutdown(listener_.descriptor(), SHUT_RDWR);
      for (auto& x : connections_)
        ::shutdown(x.fd.get(), SHUT_RDWR);
    }
    acceptor_.join();
    for (auto& x : connections_)
      x.thread.join();
  }

  loopback_server(const loopback_server&) = delete;
  loopback_server& operator=(const loopback_server&) = delete;

  int port() const noexcept { return listener_.port(); }

  std::string url() const {
    return "http://127.0.0.1:" + std::to_string(port());
  }

  /// All requests that were received completely, in order.
  std::vector<loopback_request> requests() const {
    std::lock_guard guard{mutex_};
    return requests_;
  }

  /// Waits until *n* requests have been received completely. Returns false
  /// after ten seconds.
  bool wait_for(std::size_t n) const {
    std::unique_lock lock{mutex_};
    return arrived_.wait_for(lock, std::chrono::seconds{10},
                             [&] { return requests_.size() >= n; });
  }

private:
  struct connection {
    unique_fd fd;
    std::thread thread;
  };

  void accept_all() {
    for (int n = 0;; ++n) {
      auto accepted = listener_.accept();
      std::lock_guard guard{mutex_};
      if (!accepted || stopping_)
        return;
      auto& x = connections_.emplace_back();
      x.fd = std::move(accepted);
      x.thread = std::thread{[this, fd = x.fd.get(), n] { serve(fd, n); }};
    }
  }

  void serve(int fd, int number) {
    std::string input;
    while (auto request = read_request(fd, input)) {
      request->connection = number;
      loopback_reply reply;
      {
        std::lock_guard handling{handler_mutex_};
        reply = handler_(*request);
      }
      {
        std::lock_guard guard{mutex_};
        requests_.push_back(std::move(*request));
        arrived_.notify_all();
      }
      if (!answer(fd, reply))
        break;
    }
    ::shutdown(fd, SHUT_RDWR);
  }

  static bool receive(int fd, std::string& input) {
    char buffer[65536];
    auto n = ::recv(fd, buffer, sizeof(buffer), 0);
    if (n > 0)
      input.append(buffer, static_cast<std::size_t>(n));
    return n > 0;
  }

  static std::optional<loopback_request> read_request(int fd,
                                                      std::string& input) {
    std::size_t end;
    while ((end = input.find("\r\n\r\n")) == input.npos)
      if (!receive(fd, input))
        return std::nullopt;
    auto result = head_of(input.substr(0, end + 2));
    input.erase(0, end + 4);
    if (result.headers["expect"] == "100-continue"
        && !put(fd, "HTTP/1.1 100 Continue\r\n\r\n"))
      return std::nullopt;
    auto chunked = result.headers["transfer-encoding"] == "chunked";
    auto length = static_cast<std::size_t>(
      std::atoll(result.headers["content-length"].c_str()));
    while (chunked ? !take_chunks(input, result.body) : input.size() < length)
      if (!receive(fd, input))
        return std::nullopt;
    if (!chunked) {
      result.body = input.substr(0, length);
      input.erase(0, length);
    }
    return result;
  }

  static loopback_request head_of(const std::string& head) {
    loopback_request result;
    auto line_end = head.find("\r\n");
    auto line = head.substr(0, line_end);
    auto space = line.find(' ');
    result.method = line.substr(0, space);
    result.target = line.substr(space + 1, line.rfind(' ') - space - 1);
    for (auto i = line_end + 2; i < head.size(); i = line_end + 2) {
      line_end = head.find("\r\n", i);
      line = head.substr(i, line_end - i);
      auto colon = line.find(':');
      auto name = line.substr(0, colon);
      std::ranges::transform(name, name.begin(), [](unsigned char c) {
        return static_cast<char>(std::tolower(c));
      });
      auto value = line.find_first_not_of(' ', colon + 1);
      result.headers[name] = value == line.npos ? "" : line.substr(value);
    }
    return result;
  }

  /// Moves a complete chunked body from *input* to *body*. Returns false if
  /// part of it is missing.
  static bool take_chunks(std::string& input, std::string& body) {
    std::string found;
    std::size_t at = 0;
    for (;;) {
      auto line_end = input.find("\r\n", at);
      if (line_end == input.npos)
        return false;
      auto size = std::strtoull(input.c_str() + at, nullptr, 16);
      if (input.size() < line_end + 2 + size + 2)
        return false;
      found += input.substr(line_end + 2, size);
      at = line_end + 2 + size + 2;
      if (size == 0)
        break;
    }
    input.erase(0, at);
    body = found;
    return true;
  }

  static bool put(int fd, const std::string& bytes) {
    for (std::size_t i = 0; i < bytes.size();) {
      auto n = ::send(fd, bytes.data() + i, bytes.size() - i, MSG_NOSIGNAL);
      if (n <= 0)
        return false;
      i += static_cast<std::size_t>(n);
    }
    return true;
  }

  /// Waits until *limit* has passed, the server stops, or the client leaves.
  /// Returns true after the limit.
  bool linger(int fd, std::chrono::milliseconds limit) {
    auto end = std::chrono::steady_clock::now() + limit;
    while (std::chrono::steady_clock::now() < end) {
      {
        std::unique_lock lock{mutex_};
        if (stopped_.wait_for(lock, std::chrono::milliseconds{10},
                              [&] { return stopping_; }))
          return false;
      }
      pollfd x{fd, POLLRDHUP, 0};
      if (::poll(&x, 1, 0) > 0)
        return false;
    }
    return true;
  }

  /// Whether the connection continues.
  bool answer(int fd, const loopback_reply& x) {
    if (x.delay.count() > 0 && !linger(fd, x.delay))
      return false;
    if (x.fault == reply_fault::hang)
      return linger(fd, std::chrono::hours{1});
    if (x.fault == reply_fault::close)
      return false;
    if (x.fault == reply_fault::reset) {
      struct linger value {
        1, 0
      };
      ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &value, sizeof(value));
      // Connecting to no address drops a connection with a reset.
      sockaddr nobody{};
      nobody.sa_family = AF_UNSPEC;
      ::connect(fd, &nobody, sizeof(nobody));
      return false;
    }
    auto head = "HTTP/1.1 " + std::to_string(x.status) + " Status\r\n";
    for (const auto& [name, value] : x.headers)
      head += name + ": " + value + "\r\n";
    head += "Content-Length: " + std::to_string(x.body.size()) + "\r\n\r\n";
    if (x.fault == reply_fault::none)
      return put(fd, head + x.body);
    if (x.fault == reply_fault::truncated) {
      put(fd, head + x.body.substr(0, x.body.size() / 2));
      return false;
    }
    if (!put(fd, head))
      return false;
    return std::ranges::all_of(x.body, [&](char c) {
      return linger(fd, std::chrono::milliseconds{100})
             && put(fd, std::string(1, c));
    });
  }

  handler_type handler_;
  std::mutex handler_mutex_;
  plain_listener listener_;
  mutable std::mutex mutex_;
  mutable std::condition_variable arrived_;
  std::condition_variable stopped_;
  bool stopping_ = false;
  std::vector<loopback_request> requests_;
  std::list<connection> connections_;
  std::thread acceptor_;
};

} // namespace troupe::internal::test
