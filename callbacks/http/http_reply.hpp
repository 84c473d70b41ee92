#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>

#include "troupe/callbacks/http/http_failure.hpp"
#include "troupe/runtime/error.hpp"

namespace troupe {

/// What a server answered, whatever the status.
struct http_reply {
  int status = 0;
  std::map<std::string, std::string> headers; ///< Names in lower case.
  std::string body;

  /// Of the header `Retry-After`, at most ten minutes.
  std::optional<std::chrono::seconds> retry_after;

  bool ok() const noexcept { return status >= 200 && status < 300; }
};

using http_result = tl::expected<http_reply, http_failure>;

} // namespace troupe
