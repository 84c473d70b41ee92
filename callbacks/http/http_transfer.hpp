#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include <curl/curl.h>

#include "troupe/callbacks/http/http_options.hpp"
#include "troupe/callbacks/http/http_reply.hpp"
#include "troupe/callbacks/http/http_request.hpp"

namespace troupe {

/// One request on one libcurl handle: sets all its options, and gathers the
/// reply. Not installed: libcurl is a secret of this folder.
class http_transfer {
public:
  /// Options, request and handle outlive it.
  http_transfer(CURL* easy, const http_options& options,
                const http_request& request);

  ~http_transfer();

  http_transfer(const http_transfer&) = delete;
  http_transfer& operator=(const http_transfer&) = delete;

  /// Why it need not be tried; empty: nothing.
  const std::string& problem() const noexcept { return problem_; }

  /// What *code* means, in words.
  std::string failure_text(CURLcode code) const;

  http_reply take_reply();

private:
  void set_connection(const http_options& options);
  void set_credentials(const http_options& options);
  void set_headers();
  void set_body();
  void set_file(const fs::path& path);
  void set_form();

  static std::size_t on_header(char* data, std::size_t, std::size_t size,
                               void* self);
  static std::size_t on_body(char* data, std::size_t, std::size_t size,
                             void* self);
  static std::size_t on_read(char* data, std::size_t, std::size_t size,
                             void* self);
  static int on_seek(void* self, curl_off_t offset, int origin);

  CURL* easy_;
  const http_request& request_;
  std::size_t max_reply_;
  std::string problem_;
  std::string limit_; ///< Which limit the reply broke; empty: none.
  http_reply reply_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_{nullptr, &std::fclose};
  std::uint64_t file_left_ = 0;
  std::uint64_t file_size_ = 0;
  curl_slist* headers_ = nullptr;
  curl_mime* form_ = nullptr;
  std::array<char, CURL_ERROR_SIZE> text_{};
};

} // namespace troupe
