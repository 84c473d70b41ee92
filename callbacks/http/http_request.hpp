#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "troupe/runtime/fs.hpp"

namespace troupe {

/// One field of a `multipart/form-data` body.
struct http_part {
  std::string name;
  std::string data;             ///< Not used if there is a file.
  std::optional<fs::path> file; ///< Streamed from disk.
  std::string file_name;        ///< As the server sees it; empty: none.
  std::string content_type;     ///< Empty: none.
};

/// What is asked of a server. The body is `file`, else `form`, else `body`.
struct http_request {
  std::string method = "GET";
  std::string url;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  std::optional<fs::path> file; ///< Streamed from disk, with its length.
  std::vector<http_part> form;

  /// For the whole request; of one with a file: for how long nothing moves.
  std::chrono::seconds timeout{120};

  /// Whether the server takes it twice without harm. One that is not repeatable
  /// gets a connection of its own: a kept connection may die under a request,
  /// and libcurl then sends it again by itself.
  bool repeatable = true;
};

} // namespace troupe
