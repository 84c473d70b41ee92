#pragma once

#include <caf/io/doorman.hpp>
#include <caf/io/network/acceptor_impl.hpp>
#include <caf/io/network/default_multiplexer.hpp>

#include "troupe/actors/transport/door.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe {

/// Accepts connections on a Unix socket, from processes of this user only.
class unix_doorman : public caf::io::doorman {
public:
  using multiplexer = caf::io::network::default_multiplexer;

  /// Takes ownership of *socket*, which listens. *slot* takes the role of the
  /// port in CAF: the key of the published actor.
  unix_doorman(multiplexer& loop, int socket, std::uint16_t slot,
               door_ptr door);

  bool new_connection() override;
  void graceful_shutdown() override;
  void launch() override;
  std::string addr() const override { return {}; }
  std::uint16_t port() const override { return slot_; }
  void add_to_loop() override;
  void remove_from_loop() override;

private:
  /// Takes one connection at a time, closed on exec.
  class accept_policy {
  public:
    accept_policy();

    bool try_accept(int& result, int socket);

  private:
    // Released for a moment when the process has no descriptor left, to accept
    // and close a connection that would otherwise keep the event loop spinning.
    unique_fd reserve_;
  };

  caf::io::network::acceptor_impl<accept_policy> acceptor_;
  std::uint16_t slot_;
  door_ptr door_;
};

} // namespace troupe
