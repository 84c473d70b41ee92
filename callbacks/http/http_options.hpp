#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace troupe {

/// How a client speaks to its servers. Proxies are those of the environment
/// (`http_proxy`, `https_proxy`, `no_proxy`).
struct http_options {
  std::string user; ///< With `password`: basic auth, before any token.
  std::string password;
  std::string token; ///< Bearer.

  bool insecure_tls = false;      ///< Takes any certificate.
  std::string ca_file;            ///< PEM; empty: the system's.
  std::string client_certificate; ///< PEM with certificate and key.

  std::chrono::seconds connect_timeout{10};
  /// A longer body is a failure: no reply of a tracker's is as long.
  std::size_t max_reply = 16 * 1024 * 1024;
};

} // namespace troupe
