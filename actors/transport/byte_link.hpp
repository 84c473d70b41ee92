#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "troupe/runtime/process/unshared_fd.hpp"

namespace troupe::internal {

class resumable_link;

/// A connection that moves bytes and never waits or raises a signal: what a
/// `framed_scribe` reads from and writes to.
class byte_link {
public:
  virtual ~byte_link() = default;

  /// Receives into *buffer*. Returns how many bytes: 0 if it would have to
  /// wait, nothing if the connection is over.
  virtual std::optional<std::size_t> receive(std::span<std::byte> buffer) = 0;

  /// Sends some of *bytes*; returns as `receive`. After 0, the next call must
  /// begin with the same bytes.
  virtual std::optional<std::size_t> send(std::span<const std::byte> bytes) = 0;

  /// Tells the other side that nothing more will be sent.
  virtual void finish() noexcept = 0;

  /// Whether it may hold received data that its socket no longer shows, so that
  /// `receive` must be called until it returns 0.
  virtual bool holds_data() const noexcept = 0;

  /// Once `receive` has returned nothing: whether the other side closed it, as
  /// the end of its process does. Otherwise it is broken, or something between
  /// the two may have closed it.
  virtual bool was_closed() const noexcept = 0;

  /// Whether bytes that `send` took wait for room in the socket; it sends them
  /// when it is called again.
  virtual bool has_unsent() const noexcept { return false; }

  /// Whether `send` may take bytes. False: not before `receive` has moved some.
  virtual bool takes_data() const noexcept { return true; }

  /// This link, if it can outlive a break of its connection.
  virtual resumable_link* resumable() noexcept { return nullptr; }

  virtual int socket() const noexcept = 0;

  /// Gives the socket to an event loop, which closes it after this link.
  virtual int release_socket() noexcept = 0;
};

/// A socket as it is.
class socket_link : public byte_link {
public:
  explicit socket_link(unshared_fd socket)
    : fd_(socket.get()), owned_(std::move(socket)) {}

  std::optional<std::size_t> receive(std::span<std::byte> buffer) override;
  std::optional<std::size_t> send(std::span<const std::byte> bytes) override;
  void finish() noexcept override;
  bool holds_data() const noexcept override { return false; }
  bool was_closed() const noexcept override { return was_closed_; }
  int socket() const noexcept override { return fd_; }
  int release_socket() noexcept override { return owned_.give_away(); }

private:
  int fd_;
  bool was_closed_ = false;
  unshared_fd owned_;
};

} // namespace troupe::internal
