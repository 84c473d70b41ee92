#pragma once

#include <cstdint>

#include "troupe/callbacks/http/http_client.hpp"
#include "troupe/callbacks/tracking/sink.hpp"

namespace troupe::internal {

/// For a request without a reply: transient; permanent if a certificate is not
/// valid; rejected if the request can never work.
sink_failure failure_of(const http_request& request, const http_failure& x);

/// Who wrote a reply: the tracker's service, or perhaps a gateway in front of
/// it, which answers 404 while its service restarts.
enum class reply_author : std::uint8_t { service, unknown };

/// `what` and `suspect` of a `sink_failure`.
struct status_meaning {
  sink_failure::kind what = sink_failure::kind::transient;
  bool suspect = false;

  bool operator==(const status_meaning&) const = default;
};

/// What a status that reports a failure means.
///
/// It is permanent if someone must change a credential or an address:
/// redirects, 401, 403, 407. It is transient if a server or gateway is busy or
/// down: 408, 425, 429 and 5xx but 501 and 505. All others are a service's
/// refusal of the request. 404, 405, 410 and 421 are one only if the service
/// wrote them; else they are transient. Those and 500 are suspect: some servers
/// fail on a body that they should reject.
status_meaning meaning_of(int status, reply_author author) noexcept;

/// For a reply that reports a failure: names the request, the status and the
/// server's text (the `message` of a JSON body, else its first characters),
/// with the server's `Retry-After`. *hint* is a sentence to append.
sink_failure failure_of(const http_request& request, const http_reply& x,
                        reply_author author, const std::string& hint = {});

} // namespace troupe::internal
