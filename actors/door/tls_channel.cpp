#include "troupe/actors/door/tls_channel.hpp"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <system_error>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <openssl/bio.h>
#include <openssl/ssl.h>

#include "troupe/actors/door/openssl.hpp"
#include "troupe/runtime/process/internet_socket.hpp"
#include "troupe/runtime/process/would_block.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

/// OpenSSL's access to the socket. Its own would raise SIGPIPE.
struct wire_functions {
  using wire = tls_channel::wire;

  static int read(BIO* bio, char* to, int size) {
    auto& x = *static_cast<wire*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    x.problem = 0;
    if (x.is_drained) {
      BIO_set_retry_read(bio);
      return -1;
    }
    auto n = ::recv(x.socket, to, static_cast<std::size_t>(size), MSG_DONTWAIT);
    if (n < 0 && is_temporary(errno))
      BIO_set_retry_read(bio);
    else if (n < 0)
      x.problem = errno;
    x.has_heard = x.has_heard || n > 0;
    x.is_drained = n > 0 && n < size;
    return static_cast<int>(n);
  }

  static int write(BIO* bio, const char* from, int size) {
    auto& x = *static_cast<wire*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    x.problem = 0;
    auto n = ::send(x.socket, from, static_cast<std::size_t>(size),
                    MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && is_temporary(errno))
      BIO_set_retry_write(bio);
    else if (n < 0)
      x.problem = errno;
    return static_cast<int>(n);
  }

  static long control(BIO*, int what, long, void*) {
    return what == BIO_CTRL_FLUSH ? 1 : 0;
  }

  static BIO_METHOD* method() {
    static BIO_METHOD* result = [] {
      auto x = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK,
                            "socket without signals");
      if (x != nullptr) {
        BIO_meth_set_read(x, &wire_functions::read);
        BIO_meth_set_write(x, &wire_functions::write);
        BIO_meth_set_ctrl(x, &wire_functions::control);
      }
      return x;
    }();
    return result;
  }
};

namespace {

/// What our check of the other side's certificate found.
channel_fault fault_of_check(long found) {
  switch (found) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return channel_fault::expired;
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return channel_fault::not_yet_valid;
    case X509_V_ERR_HOSTNAME_MISMATCH:
      return channel_fault::wrong_name;
    case X509_V_ERR_INVALID_PURPOSE:
      return channel_fault::wrong_usage;
    default: // Of another signer in one way or the other.
      return channel_fault::unknown_authority;
  }
}

/// What the other side's alert says about us.
channel_fault fault_of_alert(int reason) {
  switch (reason) {
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
      return channel_fault::expired;
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR: // A signature that does not fit.
      return channel_fault::unknown_authority;
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
      return channel_fault::wrong_usage;
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
      return channel_fault::bad_certificate;
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
      return channel_fault::no_certificate;
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
      return channel_fault::old_protocol;
    default:
      return channel_fault::damaged;
  }
}

/// What OpenSSL found in the data of the other side.
channel_fault fault_of_data(int reason, bool established) {
  switch (reason) {
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST:
      return channel_fault::http_request;
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_VERSION_TOO_LOW:
      return channel_fault::old_protocol;
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
      return channel_fault::no_certificate;
    case SSL_R_UNEXPECTED_EOF_WHILE_READING:
      return channel_fault::closed;
    default:
      return established ? channel_fault::damaged : channel_fault::not_tls;
  }
}

std::string sentence_of(channel_fault cause, const std::string& peer) {
  switch (cause) {
    case channel_fault::closed:
      return "it closed the connection";
    case channel_fault::http_request:
      return "it sent an HTTP request";
    case channel_fault::not_tls:
      return "it does not speak TLS";
    case channel_fault::old_protocol:
      return "it does not speak TLS 1.3";
    case channel_fault::no_certificate:
      return "it shows no certificate";
    case channel_fault::expired:
      return "its certificate has expired";
    case channel_fault::not_yet_valid:
      return "its certificate is not valid yet: are the clocks of the hosts "
             "right?";
    case channel_fault::unknown_authority:
      return "its certificate is of another run, or of another start of this "
             "one";
    case channel_fault::wrong_name:
      return "its certificate is not that of " + peer;
    case channel_fault::wrong_usage:
      return "its certificate is not meant for this side of a connection";
    default:
      return "it sent data that does not belong to the connection";
  }
}

std::string sentence_of_alert(channel_fault cause) {
  switch (cause) {
    case channel_fault::no_certificate:
      return "it asks for a certificate, and we showed none";
    case channel_fault::expired:
      return "it says that our certificate has expired";
    case channel_fault::unknown_authority:
      return "it says that our certificate is of another run, or of another "
             "start of this one";
    case channel_fault::wrong_usage:
      return "it says that our certificate is not meant for this side of a "
             "connection";
    case channel_fault::bad_certificate:
      return "it says that our certificate is of another run or role, or not "
             "valid yet by its clock";
    case channel_fault::old_protocol:
      return "it says that we do not speak its version of TLS";
    default:
      return "it refused what we sent";
  }
}

expected<void> use(SSL_CTX* context, const credentials& own) {
  TROUPE_TRY(auto mine, decode(own));
  if (SSL_CTX_use_certificate(context, mine.certificate.get()) != 1
      || SSL_CTX_use_PrivateKey(context, mine.key.get()) != 1
      || SSL_CTX_check_private_key(context) != 1
      || X509_STORE_add_cert(SSL_CTX_get_cert_store(context),
                             mine.authority.get())
           != 1)
    return openssl_failure(ec::corrupt,
                           "a certificate of the run cannot be used");
  return {};
}

/// What fits into the kernel's options.
constexpr std::chrono::seconds most_dead_after = std::chrono::hours{24};
constexpr int most_probes = 127;

/// Has the kernel watch the link, and send small messages at once.
void watch_link(int socket, const link_limits& limits) {
  auto interval = static_cast<int>(limits.keepalive.count());
  auto dead_after =
    static_cast<int>(std::min(limits.dead_after, most_dead_after).count());
  watch_connection(
    socket, {interval, std::clamp(dead_after / interval - 1, 1, most_probes),
             dead_after * 1000});
}

} // namespace

// -- identity -----------------------------------------------------------------

expected<tls_identity> tls_identity::make(const credentials& own,
                                          host_role own_role,
                                          std::string_view run) {
  ERR_clear_error();
  tls_identity result;
  result.context_ = {SSL_CTX_new(TLS_method()), &SSL_CTX_free};
  auto context = result.context_.get();
  if (context == nullptr
      || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1
      || SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) != 1
      || SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256:"
                                           "TLS_AES_256_GCM_SHA384:"
                                           "TLS_CHACHA20_POLY1305_SHA256")
           != 1)
    return openssl_failure(ec::unsupported, "OpenSSL has no TLS 1.3");
  // No resumption: every connection shows its certificate.
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE
                              | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER
                              | SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_read_ahead(context, 1);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                     nullptr);
  SSL_CTX_set_verify_depth(context, 1);
  TROUPE_TRY_VOID(use(context, own));
  auto other =
    own_role == host_role::driver ? host_role::agent : host_role::driver;
  result.peer_ = certificate_name(other, run);
  return result;
}

// -- channel ------------------------------------------------------------------

void tls_channel::free_ssl::operator()(ssl_st* x) const noexcept {
  SSL_free(x);
}

tls_channel::~tls_channel() = default;

expected<std::unique_ptr<tls_channel>>
tls_channel::make(const tls_identity& own, unshared_fd socket, side which,
                  const link_limits& limits) {
  ERR_clear_error();
  std::unique_ptr<tls_channel> result{new tls_channel};
  result->ssl_.reset(SSL_new(own.context_.get()));
  auto ssl = result->ssl_.get();
  auto method = wire_functions::method();
  auto bio = ssl != nullptr && method != nullptr ? BIO_new(method) : nullptr;
  if (bio == nullptr)
    return openssl_failure(ec::unsupported, "no TLS connection can be made");
  SSL_set_bio(ssl, bio, bio);
  BIO_set_data(bio, &result->wire_);
  BIO_set_init(bio, 1);
  SSL_set_hostflags(ssl, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT
                           | X509_CHECK_FLAG_NO_WILDCARDS);
  // Servers check their clients by it, too.
  if (SSL_set1_host(ssl, own.peer_.c_str()) != 1)
    return openssl_failure(ec::unsupported, "no TLS connection can be made");
  if (which == side::server)
    SSL_set_accept_state(ssl);
  else
    SSL_set_connect_state(ssl);
  ::fcntl(socket.get(), F_SETFL, O_RDWR | O_NONBLOCK);
  watch_link(socket.get(), limits);
  result->wire_.socket = socket.get();
  result->socket_ = std::move(socket);
  result->peer_ = own.peer_;
  result->key_bytes_ = limits.key_bytes;
  return result;
}

template <class Call>
tls_channel::progress tls_channel::run(Call call) {
  if (failure_.cause != channel_fault::none)
    return progress::failed;
  // `SSL_get_error` looks at the queue of the thread: an error of another
  // connection must not be taken for one of this.
  ERR_clear_error();
  auto result = call();
  if (result > 0)
    return progress::done;
  auto what = SSL_get_error(ssl_.get(), result);
  if (what == SSL_ERROR_WANT_READ) {
    wire_.is_drained = false;
    return progress::wants_read;
  }
  if (what == SSL_ERROR_WANT_WRITE)
    return progress::wants_write;
  failure_ = explain(what);
  ERR_clear_error();
  return progress::failed;
}

channel_failure tls_channel::explain(int what) const {
  auto code = ERR_peek_error();
  auto reason = ERR_GET_REASON(code);
  if (what == SSL_ERROR_ZERO_RETURN)
    return {channel_fault::closed, false,
            sentence_of(channel_fault::closed, peer_)};
  if (what == SSL_ERROR_SYSCALL) {
    if (wire_.problem == 0)
      return {channel_fault::closed, false,
              sentence_of(channel_fault::closed, peer_)};
    return {channel_fault::lost, false,
            std::system_category().message(wire_.problem)};
  }
  if (ERR_GET_LIB(code) == ERR_LIB_SSL && reason >= SSL_AD_REASON_OFFSET) {
    auto cause = fault_of_alert(reason);
    return {
      cause, true,
      concat(sentence_of_alert(cause), " (", take_openssl_reasons(), ")")};
  }
  if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED) {
    auto found = SSL_get_verify_result(ssl_.get());
    auto cause = fault_of_check(found);
    return {cause, false,
            concat(sentence_of(cause, peer_), " (",
                   X509_verify_cert_error_string(found), ")")};
  }
  auto cause = fault_of_data(reason, established_);
  return {cause, false,
          concat(sentence_of(cause, peer_), " (", take_openssl_reasons(), ")")};
}

tls_channel::progress tls_channel::shake_hands() {
  auto result = run([this] { return SSL_do_handshake(ssl_.get()); });
  established_ = established_ || result == progress::done;
  return result;
}

tls_channel::outcome tls_channel::read(std::span<std::byte> buffer) {
  std::size_t size = 0;
  auto what = run([&] {
    return SSL_read_ex(ssl_.get(), buffer.data(), buffer.size(), &size);
  });
  return {what, size};
}

tls_channel::outcome tls_channel::write(std::span<const std::byte> bytes) {
  std::size_t size = 0;
  auto what = run([&] {
    return SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &size);
  });
  if (what == progress::failed && failure_.cause == channel_fault::lost)
    look_for_alert();
  sent_ += size;
  if (what == progress::done && sent_ >= key_bytes_)
    renew_key();
  return {what, size};
}

void tls_channel::renew_key() {
  // One that is writable has room for many times the announcement.
  pollfd room{wire_.socket, POLLOUT, 0};
  if (::poll(&room, 1, 0) != 1 || room.revents != POLLOUT)
    return;
  ERR_clear_error();
  if (SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1) {
    sent_ = 0;
    run([this] { return SSL_do_handshake(ssl_.get()); });
  }
  ERR_clear_error();
}

void tls_channel::look_for_alert() {
  ERR_clear_error();
  char byte;
  auto result = SSL_peek(ssl_.get(), &byte, 1);
  if (result > 0 || SSL_get_error(ssl_.get(), result) != SSL_ERROR_SSL)
    return;
  if (auto found = explain(SSL_ERROR_SSL); found.by_peer)
    failure_ = std::move(found);
  ERR_clear_error();
}

void tls_channel::finish() noexcept {
  ERR_clear_error();
  if (established_ && failure_.cause == channel_fault::none)
    SSL_shutdown(ssl_.get());
  ERR_clear_error();
  ::shutdown(wire_.socket, SHUT_WR);
}

} // namespace troupe::internal
