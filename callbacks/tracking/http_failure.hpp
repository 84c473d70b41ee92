#pragma once

#include "troupe/callbacks/http/http_client.hpp"
#include "troupe/callbacks/tracking/sink.hpp"

namespace troupe::internal {

/// For a request without a reply: transient; permanent if a certificate is not
/// valid; rejected if the request can never work.
sink_failure failure_of(const http_request& request, const http_failure& x);

/// For a reply that reports a failure: names the request, the status and the
/// server's text (the `message` of a JSON body, else its first characters),
/// with the server's `Retry-After`. The statuses 408, 429, 500, 502, 503 and
/// 504 are transient; redirects, 401 and 403 permanent; all others rejected.
/// *hint* is a sentence to append.
sink_failure failure_of(const http_request& request, const http_reply& x,
                        const std::string& hint = {});

} // namespace troupe::internal
