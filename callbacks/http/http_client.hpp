#pragma once

#include <memory>
#include <stop_token>

#include "troupe/callbacks/http/http_options.hpp"
#include "troupe/callbacks/http/http_reply.hpp"
#include "troupe/callbacks/http/http_request.hpp"

namespace troupe {

/// Sends requests over HTTP/1.1, one at a time, and keeps connections for four
/// seconds: MLflow's server closes idle ones after five.
///
/// Repeats nothing by itself but what a dead kept connection did not take, and
/// follows no redirect. To be used by one thread at a time.
class http_client {
public:
  explicit http_client(http_options options = {});

  ~http_client();

  http_client(http_client&&) noexcept;
  http_client& operator=(http_client&&) noexcept;

  /// One attempt. Ends within a second once *stop* is asked to.
  http_result send(const http_request& request, std::stop_token stop = {});

  /// Replaces the bearer token for all requests that follow.
  void use_token(std::string token);

private:
  struct handles;

  http_options options_;
  std::unique_ptr<handles> handles_;
};

} // namespace troupe
