#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/actors/transport/byte_link.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/trainers/ring/host_ring.hpp"
#include "troupe/trainers/ring/link_security.hpp"

namespace troupe::internal {

/// Where a leader is found, and what its neighbors must show it: it
/// travels through the store of the attempt.
struct ring_leader {
  ring_host host;
  std::string address; ///< A number, IPv4 or IPv6.
  std::uint16_t port = 0;
  std::string token; ///< 32 hex digits, new for each attempt.

  /// Whether gradients to and from this host are encrypted: all or none.
  bool encrypted = false;
};

std::string encode(const ring_leader& x);

/// `ec::protocol` unless *text* is one.
expected<ring_leader> decode_leader(std::string_view text);

/// A port on which a leader waits for its neighbor.
class ring_port {
public:
  /// Listens on *address*, a number that belongs to this host; the system
  /// chooses the port. `ec::invalid_config` if it is not one.
  static expected<ring_port> open(const std::string& address);

  const std::string& address() const noexcept { return address_; }
  std::uint16_t port() const noexcept { return port_; }
  const std::string& token() const noexcept { return token_; }
  int socket() const noexcept { return socket_.get(); }

private:
  std::string address_;
  std::uint16_t port_ = 0;
  std::string token_;
  unique_fd socket_;
};

struct ring_links {
  std::unique_ptr<byte_link> next;
  std::unique_ptr<byte_link> previous;
};

struct join_ring_args {
  std::shared_ptr<link_security> security = plain_links();

  /// For the whole set-up: other leaders may come late.
  std::chrono::milliseconds limit{120'000};

  /// Ends it with `ec::stopped` when readable; -1: none.
  int stop = -1;

  /// How long a neighbor may be silent, afterwards, a day at most: its
  /// connection is given up two seconds later, or 2 % if that is more, and not
  /// before 10 s. A neighbor that has nothing to send is not silent: its kernel
  /// answers.
  std::chrono::milliseconds lost_after{10'000};
};

/// Connects leader *index* of *leaders* with its neighbors. It calls the next
/// one and is called by the previous one at the same time; both check each
/// other's tokens. Others that connect are dropped.
///
/// `ec::timeout` names the neighbor and what was tried.
expected<ring_links> join_ring(const ring_port& port,
                               const std::vector<ring_leader>& leaders,
                               std::size_t index, const join_ring_args& args);

} // namespace troupe::internal
