#pragma once

#include <chrono>
#include <memory>
#include <set>
#include <string>

#include <caf/actor_cast.hpp>
#include <caf/actor_system.hpp>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe {

namespace internal {

class byte_link;

} // namespace internal

/// How long `connect` waits for the other side. It usually answers in less than
/// a millisecond; a stopped or overloaded one does not.
constexpr auto connect_timeout = std::chrono::seconds{10};

namespace internal {

/// An actor of another process.
struct remote_actor {
  caf::strong_actor_ptr actor;
  /// What it takes; may be more than the caller expects.
  std::set<std::string> interface;
};

/// The untyped parts of `connect`: *interface* is what the caller expects.
expected<remote_actor> connect_actor(caf::actor_system& system,
                                     std::set<std::string> interface,
                                     const fs::path& path,
                                     std::chrono::milliseconds timeout);
expected<remote_actor> connect_actor(caf::actor_system& system,
                                     std::set<std::string> interface,
                                     unique_fd socket,
                                     std::chrono::milliseconds timeout);
expected<remote_actor> connect_actor(caf::actor_system& system,
                                     std::set<std::string> interface,
                                     std::unique_ptr<byte_link> link,
                                     std::chrono::milliseconds timeout);

template <class Handle>
Handle handle_of(remote_actor x) {
  return caf::actor_cast<Handle>(std::move(x.actor));
}

} // namespace internal

/// The actor that was published at the socket *path*, by a process of the same
/// user. Blocks; not for use inside an actor.
///
/// Fails with `timeout` if the other side does not answer in time, with
/// `protocol` if there is none, or if it belongs to another user, uses another
/// protocol or publishes an actor with another interface.
template <class Handle>
expected<Handle> connect(caf::actor_system& system, const fs::path& path,
                         std::chrono::milliseconds timeout = connect_timeout) {
  return internal::connect_actor(system, system.message_types<Handle>(), path,
                                 timeout)
    .map(internal::handle_of<Handle>);
}

/// The actor at the other end of *socket*, which came through its
/// `private_endpoint`. Fails as the other `connect`.
template <class Handle>
expected<Handle> connect(caf::actor_system& system, internal::unique_fd socket,
                         std::chrono::milliseconds timeout = connect_timeout) {
  return internal::connect_actor(system, system.message_types<Handle>(),
                                 std::move(socket), timeout)
    .map(internal::handle_of<Handle>);
}

/// The actor at the other side of *link*, where it was added to the actor's
/// `private_endpoint`. Fails as the other `connect`, and with `stopped` if the
/// other side closes the connection: its process ends.
template <class Handle>
expected<Handle> connect(caf::actor_system& system,
                         std::unique_ptr<internal::byte_link> link,
                         std::chrono::milliseconds timeout = connect_timeout) {
  return internal::connect_actor(system, system.message_types<Handle>(),
                                 std::move(link), timeout)
    .map(internal::handle_of<Handle>);
}

} // namespace troupe
