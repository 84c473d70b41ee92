#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "troupe/actors/door/tls_channel.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/forked_process.hpp"
#include "troupe/runtime/process/internet_socket.hpp"

namespace troupe::internal {

/// Names a link between an agent and its driver, over all of its connections.
/// Made by the agent, and a secret of the two.
using link_id = std::array<std::byte, 16>;

/// What a client sends first, on the one connection of several that it chose.
struct door_greeting {
  link_id link{};
  bool resumes = false; ///< An earlier connection of the link broke.
  /// The client's end of the connection, as its own host sees it.
  endpoint::bytes_type sent_from{};
};

inline constexpr std::size_t door_greeting_size =
  1 + sizeof(link_id) + sizeof(endpoint::bytes_type);

std::array<std::byte, door_greeting_size> encode(const door_greeting& x);

/// The server's answer to a greeting, one byte: the connection is accepted.
inline constexpr std::byte door_welcome{'T'};

/// Or it resumes a link that the driver does not have, or has given up.
inline constexpr std::byte door_farewell{'N'};

/// A connection that the door closed, or that ended before it was accepted.
struct door_refusal {
  channel_fault cause = channel_fault::none;
  std::string address;     ///< Of the peer; empty if it could not be accepted.
  std::string text;        ///< Continues "10.0.0.7: ".
  std::uint64_t count = 0; ///< Refusals so far, without those that have left.
  /// The peer ended it before it had greeted, as an agent does with all of its
  /// connections but one.
  bool has_left = false;
};

struct door_args {
  tls_identity own; ///< The driver's.

  /// Gets each peer that has shown the certificate of an agent of this run, and
  /// its greeting; must not wait.
  std::function<void(std::unique_ptr<tls_channel>, const door_greeting&)>
    on_client;

  /// Whether the driver still has this link; must not wait. Without it, no
  /// connection resumes a link.
  std::function<bool(const link_id&)> has_link;

  /// Gets each connection that the door closes; must not wait. May be empty.
  std::function<void(const door_refusal&)> on_refusal;

  std::uint16_t port = 0; ///< 0: any that is free.

  /// For everything from the accept to the greeting.
  std::chrono::milliseconds handshake_limit{5000};

  /// Connections that may be without a greeting, with 45 KB each. When one more
  /// comes, one is closed, of the address that has the most: the oldest that
  /// has sent nothing, or the oldest. Clients that only connect do not keep an
  /// agent out, nor do those of one address, whatever they send.
  std::size_t max_pending = 64;

  link_limits link;
};

/// The one TCP port of a run on many hosts, for IPv4 and IPv6.
///
/// A thread of its own accepts connections and shakes hands. A peer that is not
/// authenticated never gets further than this. Both functions of `door_args`
/// are called on that thread.
class door {
public:
  /// `ec::conflict` if the port is taken, `ec::spawn` if the system has no
  /// thread or descriptor left.
  static expected<owned_ptr<door>> open(door_args args);

  door(const door&) = delete;
  door& operator=(const door&) = delete;

  /// Closes the port and all connections that were not handed over. No function
  /// of `door_args` is being called afterwards.
  ~door();

  std::uint16_t port() const noexcept { return port_; }

private:
  class acceptor;

  door() = default;

  std::uint16_t port_ = 0;
  wake_event stop_;
  std::unique_ptr<acceptor> acceptor_;
  std::thread thread_;
};

} // namespace troupe::internal
