#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal {

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

  virtual int socket() const noexcept = 0;

  /// Gives the socket to an event loop, which closes it after this link.
  virtual int release_socket() noexcept = 0;
};

/// A socket as it is.
class socket_link : public byte_link {
public:
  explicit socket_link(unique_fd socket)
    : fd_(socket.get()), owned_(std::move(socket)) {}

  std::optional<std::size_t> receive(std::span<std::byte> buffer) override;
  std::optional<std::size_t> send(std::span<const std::byte> bytes) override;
  void finish() noexcept override;
  bool holds_data() const noexcept override { return false; }
  int socket() const noexcept override { return fd_; }
  int release_socket() noexcept override { return owned_.release(); }

private:
  int fd_;
  unique_fd owned_;
};

} // namespace troupe::internal
