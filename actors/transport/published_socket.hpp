#pragma once

#include <set>
#include <string>

#include <sys/stat.h>

#include <caf/actor_cast.hpp>
#include <caf/actor_system.hpp>

#include "troupe/actors/transport/publication.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/process/forked_process.hpp"

namespace troupe {

/// An actor that processes of the same user can reach through a Unix socket.
///
/// Its destructor closes the socket and removes its file, unless another one
/// has taken that path; existing connections stay. In a forked process it does
/// nothing. Destroy it before its actor system.
class published_socket {
public:
  published_socket(internal::publication published, fs::path path);
  published_socket(published_socket&& other) noexcept;
  published_socket& operator=(published_socket&& other) noexcept;
  ~published_socket();

  const fs::path& path() const noexcept { return path_; }

private:
  void remove() noexcept;

  internal::publication published_;
  fs::path path_; // empty: moved from
  struct stat file_ {};
  internal::owner_process owner_;
};

namespace internal {

/// The untyped part of `publish`: *interface* has the signatures of *whom*.
expected<published_socket> publish_actor(caf::actor_system& system,
                                         caf::strong_actor_ptr whom,
                                         std::set<std::string> interface,
                                         const fs::path& path,
                                         refusal_handler on_refusal);

} // namespace internal

/// Opens the socket *path* and offers *whom* to peers that connect.
///
/// *on_refusal* gets one sentence per refused peer or connection, on the
/// network thread. Replaces a socket that a killed process left at *path*.
/// Fails with `invalid_config` if *path* is longer than a socket's address (107
/// bytes) or its folder is open to other users, with `conflict` if something
/// else exists at *path*.
template <class Handle>
expected<published_socket> publish(caf::actor_system& system,
                                   const Handle& whom, const fs::path& path,
                                   internal::refusal_handler on_refusal = {}) {
  return internal::publish_actor(
    system, caf::actor_cast<caf::strong_actor_ptr>(whom),
    system.message_types<Handle>(), path, std::move(on_refusal));
}

} // namespace troupe
