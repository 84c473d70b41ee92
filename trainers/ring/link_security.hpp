#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "troupe/actors/transport/byte_link.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/hosts/link_credentials.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal {

/// What happens to a new connection before its first byte of ours.
class link_handshake {
public:
  enum class progress { done, wants_read, wants_write, failed };

  virtual ~link_handshake() = default;

  /// Never waits.
  virtual progress advance() = 0;

  /// Why it failed, continues "10.0.0.7: ".
  virtual std::string problem() const = 0;

  virtual int socket() const noexcept = 0;

  /// The connection, once done.
  virtual std::unique_ptr<byte_link> take() = 0;
};

/// How connections of a ring are secured.
class link_security {
public:
  virtual ~link_security() = default;

  virtual bool encrypts() const noexcept = 0;

  /// Begins on *socket*, which is connected and does not block.
  virtual expected<std::unique_ptr<link_handshake>> begin(unique_fd socket,
                                                          bool is_server) = 0;
};

/// Plain TCP, for networks that are trusted: tokens keep strangers and other
/// attempts out, but not who reads or changes packets.
std::shared_ptr<link_security> plain_links();

/// The credentials of all leaders of *run*, made in about 2 ms. Both functions
/// fail with `ec::unsupported` in a build without OpenSSL.
expected<link_credentials> make_link_credentials(std::string_view run);

/// TLS 1.3 between leaders of *run* that have the credentials *x*.
expected<std::shared_ptr<link_security>>
encrypted_links(const link_credentials& x, std::string_view run);

} // namespace troupe::internal
