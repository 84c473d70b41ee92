#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "troupe/actors/door/certificates.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/process/unshared_fd.hpp"

struct ssl_ctx_st;
struct ssl_st;

namespace troupe::internal {

/// Why a connection between hosts ended, or did not begin.
enum class channel_fault : std::uint8_t {
  none,
  closed,       ///< The other side closed it.
  lost,         ///< The peer reset it, or no longer answers.
  http_request, ///< A web browser or a health check.
  not_tls,      ///< Anything else that is not TLS.
  old_protocol, ///< TLS, but not 1.3.
  no_certificate,
  expired,
  not_yet_valid,
  unknown_authority, ///< Another run, or another start of this one.
  wrong_name,        ///< Another run or role.
  wrong_usage,       ///< Not for this side of a connection.
  bad_certificate,   ///< The other side rejected ours without a reason.
  damaged,           ///< Data that does not belong to the connection.
  silent,            ///< No handshake within the limit.
  crowded,           ///< Too many others were waiting at the door.
  refused,           ///< No process listens, or no route to the host.
};

/// How a connection failed.
struct channel_failure {
  channel_fault cause = channel_fault::none;

  /// The other side refused us and said why.
  bool by_peer = false;

  /// Continues "10.0.0.7: ".
  std::string text;
};

/// When a link counts as dead, and when it changes its key. TCP keepalive
/// detects a lost host while no messages are sent, but not a frozen one.
struct link_limits {
  /// For sent data without an acknowledgment, and for a silent peer.
  std::chrono::seconds dead_after{10};
  std::chrono::seconds keepalive{1};
  /// Bytes that a side sends under one key. With AES-GCM they must stay below
  /// 390 GB (RFC 8446, 5.5), and OpenSSL does not count them.
  std::uint64_t key_bytes = std::uint64_t{64} << 30;
};

/// What all connections of one side share: its certificate, and whose
/// certificate the other side must show.
class tls_identity {
public:
  /// Fails with `ec::corrupt` if *own* cannot be used.
  static expected<tls_identity> make(const credentials& own, host_role own_role,
                                     std::string_view run);

private:
  friend class tls_channel;

  std::shared_ptr<ssl_ctx_st> context_;
  std::string peer_; ///< The name in the other side's certificate.
};

/// One TLS 1.3 connection, authenticated on both sides, on a socket that never
/// blocks. No call waits or raises a signal.
///
/// For event loops that report a readable socket as long as it is readable:
/// `read` until it returns `wants_read`, because OpenSSL may hold data that the
/// socket no longer shows.
class tls_channel {
public:
  enum class side { server, client };

  enum class progress {
    done,
    wants_read,  ///< Again when the socket is readable.
    wants_write, ///< Again when the socket is writable.
    failed,      ///< For good; see `failure`.
  };

  struct outcome {
    progress what = progress::failed;
    std::size_t size = 0; ///< Bytes that were moved, if done.
  };

  /// Takes *socket*, a TCP connection, and makes it non-blocking;
  /// `ec::unsupported` if OpenSSL fails.
  static expected<std::unique_ptr<tls_channel>>
  make(const tls_identity& own, unshared_fd socket, side which,
       const link_limits& limits = {});

  tls_channel(const tls_channel&) = delete;
  tls_channel& operator=(const tls_channel&) = delete;
  ~tls_channel();

  /// Authenticates both sides. A client is done before the server has judged
  /// its certificate: only data from the server proves that it was accepted.
  progress shake_hands();

  outcome read(std::span<std::byte> buffer);

  /// Sends some of *bytes*; after `wants_write` the next call must begin with
  /// the same bytes.
  outcome write(std::span<const std::byte> bytes);

  /// Tells the other side that no more data will come.
  void finish() noexcept;

  const channel_failure& failure() const noexcept { return failure_; }

  /// Whether the other side has sent anything.
  bool has_heard() const noexcept { return wire_.has_heard; }

  /// Whether `shake_hands` has succeeded.
  bool is_established() const noexcept { return established_; }

  int socket() const noexcept { return wire_.socket; }

  /// Gives the socket to the caller, who closes it after this object.
  int release_socket() noexcept { return socket_.give_away(); }

private:
  /// What OpenSSL's reads and writes act on.
  struct wire {
    int socket = -1;
    int problem = 0; ///< errno of the latest call.
    bool has_heard = false;
    /// The latest recv emptied the socket: the next would return nothing.
    bool is_drained = false;
  };

  struct free_ssl {
    void operator()(ssl_st* x) const noexcept;
  };

  friend struct wire_functions;

  tls_channel() = default;

  template <class Call>
  progress run(Call call);

  channel_failure explain(int what) const;

  /// Sends under another key from now on, unless the socket is full: OpenSSL
  /// reads nothing while the announcement waits, so that two sides that do not
  /// read could wait for each other.
  void renew_key();

  /// A peer that refused us may have said why before it reset the connection.
  void look_for_alert();

  unshared_fd socket_;
  wire wire_;
  std::string peer_;
  channel_failure failure_;
  bool established_ = false;
  std::uint64_t key_bytes_ = 0;
  std::uint64_t sent_ = 0; ///< Bytes under the present key.
  std::unique_ptr<ssl_st, free_ssl> ssl_;
};

} // namespace troupe::internal
