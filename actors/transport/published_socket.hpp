#pragma once

#include <cstdint>
#include <set>
#include <string>

#include <caf/actor_cast.hpp>
#include <caf/actor_system.hpp>

#include "troupe/actors/transport/door.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe {

/// An actor that processes of the same user reach through a Unix socket.
///
/// Closes the socket and removes its file when it goes; connections that exist
/// stay. Must go before its actor system.
class published_socket {
public:
  published_socket(caf::actor_system& system, fs::path path, std::uint16_t slot,
                   door_ptr door);
  published_socket(published_socket&& other) noexcept;
  published_socket& operator=(published_socket&& other) noexcept;
  ~published_socket();

  const fs::path& path() const noexcept { return path_; }

  /// Peers of another user whose connection was closed unread.
  std::uint64_t refused_peers() const noexcept { return door_->refused_peers; }

  /// Connections that were closed because a frame broke the rules of
  /// `frame_guard`.
  std::uint64_t refused_frames() const noexcept {
    return door_->refused_frames;
  }

private:
  void close() noexcept;

  caf::actor_system* system_; // null: moved from
  fs::path path_;
  std::uint16_t slot_;
  door_ptr door_;
};

/// The untyped part of `publish`: *interface* has the signatures of *whom*.
expected<published_socket> publish_actor(caf::actor_system& system,
                                         caf::strong_actor_ptr whom,
                                         std::set<std::string> interface,
                                         const fs::path& path,
                                         refusal_handler on_refusal);

/// Opens the socket *path* and answers whoever connects to it with *whom*.
///
/// *on_refusal* gets one sentence per refused peer or connection, on the
/// network thread. Fails with `invalid_config` if *path* is longer than a
/// socket's address (107 bytes) or its folder is open to other users, with
/// `conflict` if something lies at *path* already.
template <class Handle>
expected<published_socket> publish(caf::actor_system& system,
                                   const Handle& whom, const fs::path& path,
                                   refusal_handler on_refusal = {}) {
  return publish_actor(system, caf::actor_cast<caf::strong_actor_ptr>(whom),
                       system.message_types(caf::detail::type_list<Handle>{}),
                       path, std::move(on_refusal));
}

} // namespace troupe
