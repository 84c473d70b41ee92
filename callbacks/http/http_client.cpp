#include "troupe/callbacks/http/http_client.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include <curl/curl.h>

#include "troupe/runtime/process/secrets.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// Longest wait that a server may request.
constexpr std::chrono::seconds longest_retry_after{600};

/// How long libcurl's own pool keeps an idle connection, in seconds.
constexpr long kept_connection_s = 4;

/// The file or folder of authorities that the environment names, for the
/// clients of the trackers or for all programs; empty: none.
std::string ca_of_environment() {
  for (auto name : {"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"})
    if (auto value = std::getenv(name); value && *value)
      return value;
  return {};
}

/// The kind of failure that *code* means.
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
    case CURLE_WRITE_ERROR:
    case CURLE_FILESIZE_EXCEEDED:
      return unusable;
    case CURLE_READ_ERROR:
    case CURLE_ABORTED_BY_CALLBACK:
      return unreadable;
    default:
      return cut;
  }
}

/// One request on one libcurl handle: sets all its options and collects the
/// reply.
class http_transfer {
public:
  /// Options, request and handle must outlive it.
  http_transfer(CURL* easy, const http_options& options,
                const http_request& request);

  ~http_transfer();

  http_transfer(const http_transfer&) = delete;
  http_transfer& operator=(const http_transfer&) = delete;

  /// Why the request cannot be sent; unset: it can.
  const std::optional<http_failure>& problem() const noexcept {
    return problem_;
  }

  /// A sentence for *code*.
  std::string failure_text(CURLcode code) const;

  http_reply take_reply();

private:
  void set_connection(const http_options& options);
  void set_credentials(const http_options& options);
  void set_headers();
  void set_body();
  void set_file(const fs::path& path);
  void set_form();

  static std::size_t on_body(char* data, std::size_t, std::size_t size,
                             void* self);
  static std::size_t on_read(char* data, std::size_t, std::size_t size,
                             void* self);
  static int on_seek(void* self, curl_off_t offset, int origin);

  CURL* easy_;
  const http_request& request_;
  std::size_t max_reply_;
  std::optional<http_failure> problem_;
  std::string limit_; ///< Which limit was exceeded; empty: none.
  http_reply reply_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_{nullptr, &std::fclose};
  std::uint64_t file_left_ = 0;
  std::uint64_t file_size_ = 0;
  curl_slist* headers_ = nullptr;
  curl_mime* form_ = nullptr;
  std::array<char, CURL_ERROR_SIZE> text_{};
};

http_transfer::http_transfer(CURL* easy, const http_options& options,
                             const http_request& request)
  : easy_(easy), request_(request), max_reply_(options.max_reply) {
  curl_easy_reset(easy_);
  set_connection(options);
  set_credentials(options);
  set_headers();
  set_body();
}

http_transfer::~http_transfer() {
  curl_easy_reset(easy_);
  curl_slist_free_all(headers_);
  curl_mime_free(form_);
}

void http_transfer::set_connection(const http_options& options) {
  curl_easy_setopt(easy_, CURLOPT_URL, request_.url.c_str());
  curl_easy_setopt(easy_, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy_, CURLOPT_HTTP_VERSION,
                   static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(easy_, CURLOPT_NOSIGNAL, 1L);
  // A cancelled request does not wait for the name server.
  curl_easy_setopt(easy_, CURLOPT_QUICK_EXIT, 1L);
  curl_easy_setopt(easy_, CURLOPT_ERRORBUFFER, text_.data());
  curl_easy_setopt(easy_, CURLOPT_ACCEPT_ENCODING, "");
  curl_easy_setopt(easy_, CURLOPT_MAXAGE_CONN, kept_connection_s);
  if (!request_.repeatable)
    curl_easy_setopt(easy_, CURLOPT_FRESH_CONNECT, 1L);
  curl_easy_setopt(easy_, CURLOPT_CONNECTTIMEOUT,
                   static_cast<long>(options.connect_timeout.count()));
  auto timeout = static_cast<long>(request_.timeout.count());
  if (request_.file || !request_.form.empty()) {
    curl_easy_setopt(easy_, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(easy_, CURLOPT_LOW_SPEED_TIME, timeout);
  } else {
    curl_easy_setopt(easy_, CURLOPT_TIMEOUT, timeout);
  }
  curl_easy_setopt(easy_, CURLOPT_WRITEFUNCTION, &http_transfer::on_body);
  curl_easy_setopt(easy_, CURLOPT_WRITEDATA, this);
}

void http_transfer::set_credentials(const http_options& options) {
  if (!options.user.empty() || !options.password.empty()) {
    curl_easy_setopt(easy_, CURLOPT_HTTPAUTH, CURLAUTH_BASIC);
    curl_easy_setopt(easy_, CURLOPT_USERNAME, options.user.c_str());
    curl_easy_setopt(easy_, CURLOPT_PASSWORD, options.password.c_str());
  } else if (!options.token.empty()) {
    curl_easy_setopt(easy_, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
    curl_easy_setopt(easy_, CURLOPT_XOAUTH2_BEARER, options.token.c_str());
  }
  if (options.insecure_tls) {
    curl_easy_setopt(easy_, CURLOPT_SSL_VERIFYPEER, 0L);
    curl_easy_setopt(easy_, CURLOPT_SSL_VERIFYHOST, 0L);
  }
  if (!options.ca_file.empty()) {
    auto found = look_up(options.ca_file);
    auto is_folder = found && found->is_folder();
    auto path = options.ca_file.c_str();
    curl_easy_setopt(easy_, CURLOPT_CAINFO, is_folder ? nullptr : path);
    curl_easy_setopt(easy_, CURLOPT_CAPATH, is_folder ? path : nullptr);
  }
  if (!options.client_certificate.empty()) {
    curl_easy_setopt(easy_, CURLOPT_SSLCERT,
                     options.client_certificate.c_str());
    curl_easy_setopt(easy_, CURLOPT_SSLKEY, options.client_certificate.c_str());
  }
}

void http_transfer::set_headers() {
  auto add = [&](const std::string& line) {
    headers_ = curl_slist_append(headers_, line.c_str());
  };
  add("Expect:"); // Some servers ignore it, and libcurl waits a second.
  auto typed = false;
  for (const auto& [name, value] : request_.headers) {
    add(value.empty() ? name + ";" : name + ": " + value);
    typed = typed || name == "Content-Type";
  }
  if (!typed && request_.form.empty())
    add("Content-Type:"); // Otherwise libcurl adds its own.
  curl_easy_setopt(easy_, CURLOPT_HTTPHEADER, headers_);
}

void http_transfer::set_body() {
  if (request_.file) {
    set_file(*request_.file);
  } else if (!request_.form.empty()) {
    set_form();
  } else if (!request_.body.empty() || request_.method == "POST"
             || request_.method == "PUT") {
    curl_easy_setopt(easy_, CURLOPT_POSTFIELDSIZE_LARGE,
                     static_cast<curl_off_t>(request_.body.size()));
    curl_easy_setopt(easy_, CURLOPT_POSTFIELDS, request_.body.c_str());
  } else if (request_.method == "HEAD") {
    curl_easy_setopt(easy_, CURLOPT_NOBODY, 1L);
  }
  curl_easy_setopt(easy_, CURLOPT_CUSTOMREQUEST, request_.method.c_str());
}

void http_transfer::set_file(const fs::path& path) {
  using enum http_failure::kind;
  auto found = look_up(path);
  if (!found) {
    problem_ = http_failure{unreadable, found.error().message};
    return;
  }
  if (found->is_file())
    file_.reset(std::fopen(path.c_str(), "rbe"));
  if (!file_) {
    auto why = !found->exists() ? ENOENT : found->is_file() ? errno : EISDIR;
    problem_ =
      http_failure{found->is_file() && may_pass(why) ? unreadable : unusable,
                   path.string() + " cannot be read: " + std::strerror(why)};
    return;
  }
  file_size_ = found->size;
  file_left_ = file_size_;
  curl_easy_setopt(easy_, CURLOPT_UPLOAD, 1L);
  curl_easy_setopt(easy_, CURLOPT_INFILESIZE_LARGE,
                   static_cast<curl_off_t>(file_size_));
  curl_easy_setopt(easy_, CURLOPT_READFUNCTION, &http_transfer::on_read);
  curl_easy_setopt(easy_, CURLOPT_READDATA, this);
  curl_easy_setopt(easy_, CURLOPT_SEEKFUNCTION, &http_transfer::on_seek);
  curl_easy_setopt(easy_, CURLOPT_SEEKDATA, this);
}

void http_transfer::set_form() {
  using enum http_failure::kind;
  form_ = curl_mime_init(easy_);
  for (const auto& x : request_.form) {
    auto* part = curl_mime_addpart(form_);
    curl_mime_name(part, x.name.c_str());
    if (!x.file)
      curl_mime_data(part, x.data.data(), x.data.size());
    else if (curl_mime_filedata(part, x.file->c_str()) != CURLE_OK) {
      auto found = look_up(*x.file);
      problem_ = http_failure{found && !found->exists() ? unusable : unreadable,
                              x.file->string() + " cannot be read"};
    }
    if (x.file || !x.file_name.empty())
      curl_mime_filename(part,
                         x.file_name.empty() ? nullptr : x.file_name.c_str());
    if (!x.content_type.empty())
      curl_mime_type(part, x.content_type.c_str());
  }
  curl_easy_setopt(easy_, CURLOPT_MIMEPOST, form_);
}

std::string http_transfer::failure_text(CURLcode code) const {
  if (!limit_.empty())
    return limit_;
  return text_[0] ? text_.data() : curl_easy_strerror(code);
}

http_reply http_transfer::take_reply() {
  long status = 0;
  curl_easy_getinfo(easy_, CURLINFO_RESPONSE_CODE, &status);
  reply_.status = static_cast<int>(status);
  curl_off_t seconds = 0;
  curl_easy_getinfo(easy_, CURLINFO_RETRY_AFTER, &seconds);
  if (seconds > 0)
    reply_.retry_after =
      std::min(std::chrono::seconds{seconds}, longest_retry_after);
  const char* redirect = nullptr;
  curl_easy_getinfo(easy_, CURLINFO_REDIRECT_URL, &redirect);
  if (redirect)
    reply_.redirect = redirect;
  return std::move(reply_);
}

std::size_t http_transfer::on_body(char* data, std::size_t, std::size_t size,
                                   void* self) {
  auto& x = *static_cast<http_transfer*>(self);
  if (x.reply_.body.size() + size > x.max_reply_) {
    x.limit_ = concat("the reply is longer than ", x.max_reply_, " bytes");
    return 0;
  }
  x.reply_.body.append(data, size);
  return size;
}

std::size_t http_transfer::on_read(char* data, std::size_t, std::size_t size,
                                   void* self) {
  auto& x = *static_cast<http_transfer*>(self);
  // Of a file that grows meanwhile, the initial length is sent.
  auto wanted = std::min<std::uint64_t>(size, x.file_left_);
  auto n = std::fread(data, 1, wanted, x.file_.get());
  if (n < wanted && n == 0) {
    x.limit_ = std::ferror(x.file_.get()) != 0
                 ? "the file could not be read to its end"
                 : "the file became shorter while it was sent";
    return CURL_READFUNC_ABORT;
  }
  x.file_left_ -= n;
  return n;
}

int http_transfer::on_seek(void* self, curl_off_t offset, int origin) {
  auto& x = *static_cast<http_transfer*>(self);
  if (origin != SEEK_SET || std::fseek(x.file_.get(), offset, SEEK_SET) != 0)
    return CURL_SEEKFUNC_FAIL;
  x.file_left_ = x.file_size_ - static_cast<std::uint64_t>(offset);
  return CURL_SEEKFUNC_OK;
}

} // namespace

/// `multi` owns the connections.
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

  /// Runs the request of `easy`. Returns `CURLE_OK` or why there is no complete
  /// reply; nothing if the request was cancelled.
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
  : options_(std::move(options)), handles_(std::make_unique<handles>()) {
  if (options_.ca_file.empty())
    options_.ca_file = ca_of_environment();
}

http_client::~http_client() = default;
http_client::http_client(http_client&&) noexcept = default;
http_client& http_client::operator=(http_client&&) noexcept = default;

http_result http_client::send(const http_request& request,
                              std::stop_token stop) {
  using enum http_failure::kind;
  http_transfer transfer{handles_->easy, options_, request};
  if (auto& problem = transfer.problem())
    return tl::unexpected{*problem};
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

} // namespace troupe::internal
