#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe::internal {

/// Credentials, TLS and limits of a client. Proxies come from the environment
/// (`http_proxy`, `https_proxy`, `no_proxy`).
struct http_options {
  std::string user; ///< With `password`: basic auth; wins over a token.
  std::string password;
  std::string token; ///< Bearer.

  bool insecure_tls = false; ///< Accepts any certificate.
  /// PEM, or a folder of such files as OpenSSL names them: the only authorities
  /// to trust. Empty: those of `REQUESTS_CA_BUNDLE`, `CURL_CA_BUNDLE` or
  /// `SSL_CERT_FILE`, which libcurl itself does not read, else the system's.
  std::string ca_file;
  std::string client_certificate; ///< PEM with certificate and key.

  std::chrono::seconds connect_timeout{10};
  /// A longer body is a failure; replies of trackers are far shorter.
  std::size_t max_reply = 16 * 1024 * 1024;
};

/// One field of a `multipart/form-data` body.
struct http_part {
  std::string name;
  std::string data;             ///< Ignored if there is a file.
  std::optional<fs::path> file; ///< Streamed from disk.
  std::string file_name;        ///< As the server sees it; empty: none.
  std::string content_type;     ///< Empty: none.
};

/// A request. Its body is `file`, else `form`, else `body`.
struct http_request {
  std::string method = "GET";
  std::string url;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  std::optional<fs::path> file; ///< Streamed from disk, with its length.
  std::vector<http_part> form;

  /// Limit for the whole request; with a file or form, for a pause in the
  /// transfer.
  std::chrono::seconds timeout{120};

  /// Whether sending it twice is harmless. If not, it gets its own connection:
  /// a kept connection may break during a request, and libcurl then sends the
  /// request again.
  bool repeatable = true;
};

/// Why a request got no complete reply.
struct http_failure {
  enum class kind : std::uint8_t {
    unreachable, ///< No connection: the server has not seen the request.
    cut,         ///< The connection broke; the server may have acted.
    timeout,     ///< The time limit expired; the server may have acted.
    untrusted,   ///< The certificate is not valid, or a file of the TLS
                 ///< options cannot be used.
    unusable,    ///< It can never work: the URL, a file that is not there, a
                 ///< reply over the limit.
    cancelled,   ///< The stop token was asked to stop.
    unreadable,  ///< A file of it cannot be read now, or became shorter.
  };

  kind what = kind::cut;
  std::string text; ///< libcurl's message, without secrets.
};

/// A server's answer, whatever the status.
struct http_reply {
  int status = 0;
  std::string redirect; ///< Where the page is instead; empty: here.
  std::string body;

  /// From the header `Retry-After`, unless it is 0; at most ten minutes.
  std::optional<std::chrono::seconds> retry_after;

  bool ok() const noexcept { return status >= 200 && status < 300; }
};

using http_result = tl::expected<http_reply, http_failure>;

/// Sends requests over HTTP/1.1, one at a time, and keeps connections for four
/// seconds: MLflow's server closes idle ones after five.
///
/// Repeats a request only if a kept connection broke before the server took it;
/// follows no redirects. One thread at a time may use it. libcurl is private to
/// the source.
class http_client {
public:
  explicit http_client(http_options options = {});

  ~http_client();

  http_client(http_client&&) noexcept;
  http_client& operator=(http_client&&) noexcept;

  /// Makes one attempt, which ends within a second of a stop request.
  http_result send(const http_request& request, std::stop_token stop = {});

  /// Replaces the bearer token for later requests.
  void use_token(std::string token);

private:
  struct handles;

  http_options options_;
  std::unique_ptr<handles> handles_;
};

} // namespace troupe::internal
