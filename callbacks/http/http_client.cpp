#include "troupe/callbacks/http/http_client.hpp"

#include <mutex>
#include <string>

#include <curl/curl.h>

#include "troupe/callbacks/http/http_transfer.hpp"
#include "troupe/runtime/process/redacted.hpp"

namespace troupe {

namespace {

/// The failure that *code* stands for.
http_failure::kind kind_of(CURLcode code) {
  using enum http_failure::kind;
  switch (code) {
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
      return unreachable;
    case CURLE_OPERATION_TIMEDOUT:
      return timeout;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
      return untrusted;
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_READ_ERROR:
    case CURLE_ABORTED_BY_CALLBACK:
    case CURLE_WRITE_ERROR:
    case CURLE_FILESIZE_EXCEEDED:
      return unusable;
    default:
      return cut;
  }
}

} // namespace

/// The connections live in `multi`.
struct http_client::handles {
  handles() {
    static std::once_flag once;
    std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
    multi = curl_multi_init();
    easy = curl_easy_init();
  }

  ~handles() {
    curl_easy_cleanup(easy);
    curl_multi_cleanup(multi);
  }

  handles(const handles&) = delete;
  handles& operator=(const handles&) = delete;

  /// Runs the request of `easy`; `CURLE_OK` or why there is no whole reply,
  /// nothing if it was cancelled.
  std::optional<CURLcode> run(const std::stop_token& stop) {
    std::stop_callback wake{stop, [this] { curl_multi_wakeup(multi); }};
    curl_multi_add_handle(multi, easy);
    int running = 1;
    while (running && !stop.stop_requested()) {
      curl_multi_perform(multi, &running);
      if (running)
        curl_multi_poll(multi, nullptr, 0, 1000, nullptr);
    }
    std::optional<CURLcode> result;
    int left = 0;
    while (const auto* message = curl_multi_info_read(multi, &left))
      if (message->msg == CURLMSG_DONE)
        result = message->data.result;
    curl_multi_remove_handle(multi, easy);
    return result;
  }

  CURLM* multi = nullptr;
  CURL* easy = nullptr;
};

http_client::http_client(http_options options)
  : options_(std::move(options)), handles_(std::make_unique<handles>()) {}

http_client::~http_client() = default;
http_client::http_client(http_client&&) noexcept = default;
http_client& http_client::operator=(http_client&&) noexcept = default;

http_result http_client::send(const http_request& request,
                              std::stop_token stop) {
  using enum http_failure::kind;
  http_transfer transfer{handles_->easy, options_, request};
  if (auto problem = transfer.problem(); !problem.empty())
    return tl::unexpected{http_failure{unusable, problem}};
  auto code = handles_->run(stop);
  if (!code)
    return tl::unexpected{http_failure{cancelled, "it was cancelled"}};
  if (*code != CURLE_OK)
    return tl::unexpected{
      http_failure{kind_of(*code), redacted(transfer.failure_text(*code))}};
  return transfer.take_reply();
}

void http_client::use_token(std::string token) {
  options_.token = std::move(token);
}

} // namespace troupe
