#pragma once

#include <cstdint>
#include <string>

namespace troupe {

/// Why a request got no whole reply.
struct http_failure {
  enum class kind : std::uint8_t {
    unreachable, ///< No connection: the server has not seen the request.
    cut,         ///< The connection broke; the server may have acted.
    timeout,     ///< As `cut`, by the clock.
    untrusted,   ///< The certificate does not hold, or a file of the TLS
                 ///< options is no good.
    unusable,    ///< It can never work: the URL, a file that cannot be read, a
                 ///< reply over the limit.
    cancelled,   ///< The stop token was asked to stop.
  };

  kind what = kind::cut;
  std::string text; ///< libcurl's words, without secrets.
};

} // namespace troupe
