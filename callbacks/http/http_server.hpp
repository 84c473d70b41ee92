#pragma once

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal {

struct served_request {
  std::string method;
  std::string path;                          ///< As sent, without the query.
  std::string query;                         ///< What follows the first `?`.
  std::map<std::string, std::string> fields; ///< Names in lower case.

  /// The header field *name*, in lower case; empty if there is none.
  std::string_view field(const std::string& name) const;

  /// The parameter *name* of the query, decoded; empty if there is none.
  std::string parameter(std::string_view name) const;
};

struct served_answer {
  std::string status = "200 OK";
  std::string type = "text/plain";
  std::string body;
  std::string fields = {}; ///< Further header fields, each with its line end.
  /// The connection stays open for what `send` adds to the body.
  bool is_stream = false;
};

/// A short answer that says *status* in its body, too.
served_answer plain_answer(std::string status);

/// When a client that is too slow is dropped.
class client_deadline {
public:
  using clock = std::chrono::steady_clock;

  /// In the past.
  client_deadline() = default;

  /// Once it has taken nothing for *patience* from *now* on. Unless it reads a
  /// stream, at the latest after twelve times that: someone who takes a byte
  /// now and then must not keep others out.
  client_deadline(clock::time_point now, std::chrono::milliseconds patience,
                  bool is_stream)
    : patience_(patience),
      last_(is_stream ? clock::time_point::max() : now + 12 * patience) {
    extend(now);
  }

  /// It has taken some bytes.
  void extend(clock::time_point now) {
    next_ = std::min(now + patience_, last_);
  }

  clock::time_point next() const noexcept { return next_; }

  /// Of a client that need not do anything.
  static client_deadline never() {
    client_deadline result;
    result.next_ = clock::time_point::max();
    return result;
  }

private:
  std::chrono::milliseconds patience_{0};
  clock::time_point last_{};
  clock::time_point next_{};
};

/// Serves HTTP/1.1 over IPv4 on the thread that calls `serve`.
///
/// Refuses requests of more than 8 KiB, does not read their bodies, and drops
/// clients that send or read too slowly. Accepts at most 32 connections, each
/// for one request; half of them may be streams. Without a free descriptor,
/// clients wait until there is one.
///
/// At a loopback address it refuses requests whose `Host` is a name other than
/// `localhost`: a web page could map its own name to this address (DNS
/// rebinding) and make a browser on this host read the page.
class http_server {
public:
  using clock = std::chrono::steady_clock;
  using handler = std::function<served_answer(const served_request&)>;

  struct options {
    std::string address = "127.0.0.1";
    std::uint16_t port = 0; ///< 0: a free one.
    /// Time for a client to send its request. A `client_deadline` limits how
    /// long it reads the answer or what was sent to its stream.
    std::chrono::milliseconds patience{5000};
    /// Drops clients that are processes of another user of this host, as far
    /// as the kernel tells whose they are.
    bool own_user_only = false;
  };

  /// A client that reads a stream.
  struct stream {
    std::uint64_t id = 0;
    std::string query; ///< Of its request.
  };

  static constexpr std::size_t max_request = 8 * 1024;
  static constexpr std::size_t max_connections = 32;
  static constexpr std::size_t max_streams = max_connections / 2;

  /// *answer* is called by `serve`; an exception becomes an answer of status
  /// 500. Fails with `ec::invalid_config` if the address is not an IPv4
  /// address, with `ec::conflict` if the port is taken.
  static expected<http_server> listen(options how, handler answer);

  /// Waits until one of *others* is ready, a client was served, or *until* has
  /// come; sets `revents` of *others*. Fails only if the system cannot wait for
  /// clients.
  expected<void> serve(std::span<pollfd> others,
                       clock::time_point until = clock::time_point::max());

  /// The streams whose clients have taken all that was sent.
  std::vector<stream> idle_streams() const;

  bool has_streams() const noexcept;

  /// Whether the stream *id* is open.
  bool is_open(std::uint64_t id) const noexcept;

  /// Sends *bytes* to the stream *id*; nothing if it is closed.
  void send(std::uint64_t id, std::string_view bytes);

  /// `127.0.0.1:9099`
  const std::string& address() const noexcept { return address_; }

private:
  struct connection {
    unique_fd socket;
    client_deadline deadline;
    std::uint64_t id = 0;
    std::string input;
    std::string output;               ///< The rest of the answer.
    bool answered = false;            ///< All is sent; the client must close.
    std::optional<std::string> query; ///< Of a stream.
  };

  http_server(unique_fd listener, std::string address, bool loopback,
              options how, handler answer);

  void accept_one();
  /// Whether the connection stays open.
  bool handle(connection& x, short ready);
  bool send_rest(connection& x);
  bool is_for_us(const served_request& x) const;
  std::string answer_to(connection& x);
  std::size_t stream_count() const noexcept;

  unique_fd listener_;
  std::string address_;
  bool loopback_;
  options options_;
  handler answer_;
  clock::time_point next_accept_; ///< No earlier, after a failure.
  std::uint64_t last_id_ = 0;
  std::vector<connection> connections_;
};

/// Whether two secrets are equal. The time that it takes does not depend on
/// where they differ.
bool same_secret(std::string_view a, std::string_view b) noexcept;

} // namespace troupe::internal
