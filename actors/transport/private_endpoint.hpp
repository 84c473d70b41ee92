#pragma once

#include <memory>
#include <set>
#include <string>

#include <caf/actor_cast.hpp>
#include <caf/actor_system.hpp>

#include "troupe/actors/transport/publication.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal {

class byte_link;
class pair_doorman;

/// A connection point of an actor without a name: only a process that was given
/// the other end of a socketpair can connect.
class private_endpoint {
public:
  static expected<private_endpoint> open(caf::actor_system& system,
                                         caf::strong_actor_ptr whom,
                                         std::set<std::string> interface,
                                         refusal_handler on_refusal);

  private_endpoint(private_endpoint&&) noexcept;
  private_endpoint& operator=(private_endpoint&&) noexcept;
  ~private_endpoint();

  /// A new connection to the actor; the result is the end for `connect` in
  /// another process. From any thread; fails with `ec::spawn`.
  expected<unique_fd> new_connection();

  /// Serves a connection whose other side was authenticated elsewhere. From any
  /// thread.
  void add(std::unique_ptr<byte_link> link);

private:
  private_endpoint(publication published,
                   caf::intrusive_ptr<pair_doorman> doorman);

  publication published_;
  caf::intrusive_ptr<pair_doorman> doorman_;
};

/// Closes the connection to the process *whose* as if it were broken: what was
/// not sent yet is dropped, nothing of it arrives any more, and its actors are
/// down. The other side of a `resumable_link` does not dial again if it hears
/// that. Needs no answer, so that it works with a process that is frozen. Any
/// thread.
void cut_off(caf::actor_system& system, const caf::node_id& whose);

/// Opens a private endpoint of *whom*. *on_refusal* gets one sentence per
/// connection that is closed for invalid data, on the network thread.
template <class Handle>
expected<private_endpoint>
open_private_endpoint(caf::actor_system& system, const Handle& whom,
                      refusal_handler on_refusal = {}) {
  return private_endpoint::open(
    system, caf::actor_cast<caf::strong_actor_ptr>(whom),
    system.message_types<Handle>(), std::move(on_refusal));
}

} // namespace troupe::internal
