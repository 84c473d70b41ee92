#pragma once

#include <chrono>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal {

/// A listening socket at *path* that only this user may connect to.
///
/// Replaces a socket that a killed process left behind. Fails with
/// `invalid_config` if *path* is longer than a socket's address (107 bytes) or
/// its folder is open to other users, with `conflict` if something else exists
/// at *path*.
expected<unique_fd> listen_at(const fs::path& path);

/// A socket connected to *path*, whose listener belongs to this user.
///
/// Fails with `timeout` if the listener has no room for that long, with
/// `protocol` if there is none or it belongs to another user.
expected<unique_fd> connect_to(const fs::path& path,
                               std::chrono::milliseconds timeout);

/// Whether the process at the other end of the Unix socket *fd* runs as this
/// user.
bool is_own_peer(int fd);

} // namespace troupe::internal
