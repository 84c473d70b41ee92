#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <poll.h>

#include "troupe/actors/transport/byte_link.hpp"
#include "troupe/trainers/ring/link_security.hpp"

namespace troupe::internal {

/// Digits of the token that a leader makes for its neighbors.
inline constexpr std::size_t ring_token_digits = 32;

/// What neighbors say first: the caller shows the token of the called one and
/// who it is, the called one answers with the caller's token, and the caller
/// repeats its own. Without that the called one could take a connection that
/// the caller has given up for another.
struct ring_greeting {
  std::array<char, 16> magic{};
  std::array<char, ring_token_digits> token{};
  std::uint64_t index = 0;

  bool operator==(const ring_greeting&) const = default;
};

/// Shows *token*; *index* is the caller's, both ways.
ring_greeting greeting_of(const std::string& token, std::size_t index);

/// A connection until both sides have greeted. Never waits: its owner polls for
/// what `wait` says, then calls `advance`.
class greeted_connection {
public:
  using time_point = std::chrono::steady_clock::time_point;

  /// The side that *calls* shows *sent* first. The called one shows it only
  /// after it has seen *wanted*.
  greeted_connection(std::unique_ptr<link_handshake> handshake, bool calls,
                     const ring_greeting& sent, const ring_greeting& wanted,
                     time_point deadline)
    : deadline(deadline), handshake_(std::move(handshake)), sends_(calls),
      sent_(sent), wanted_(wanted) {}

  /// Continues as far as it can. False if it has failed, see `problem`.
  bool advance();

  bool is_greeted() const noexcept { return left_ == 0; }

  /// On the called side: whether the caller has shown that it is of this ring.
  bool is_known() const noexcept { return left_ < 3; }

  /// Whether the other side has not said anything yet.
  bool is_silent() noexcept;

  pollfd wait() const noexcept;

  /// The connection, ready for data, once both have greeted; *lost_after* is
  /// that of `join_ring_args`.
  std::unique_ptr<byte_link> take(std::chrono::milliseconds lost_after);

  time_point deadline;
  std::string address; ///< Of a caller, if its owner has set it.
  std::string problem;

private:
  bool shake_hands();
  int socket() const noexcept {
    return handshake_ ? handshake_->socket() : link_->socket();
  }
  std::optional<std::size_t> send();
  std::optional<std::size_t> receive();

  std::unique_ptr<link_handshake> handshake_;
  short events_ = POLLIN;
  std::unique_ptr<byte_link> link_;
  bool sends_;
  bool has_spoken_ = false; ///< The other side.
  int left_ = 3;            ///< Greetings.
  std::size_t done_ = 0;
  ring_greeting sent_;
  ring_greeting wanted_;
  ring_greeting got_;
};

} // namespace troupe::internal
