#include "troupe/callbacks/tracking/http_failure.hpp"

#include "troupe/runtime/process/secrets.hpp"
#include "troupe/runtime/storage/json.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

constexpr std::size_t shown_characters = 300;

/// The server's text in *body* on one line: the message of a JSON object, else
/// the body itself.
std::string server_text(const std::string& body) {
  auto object = json::parse(body);
  std::string text;
  if (object.is_object())
    for (const auto* name : {"message", "error_description", "msg", "error"})
      if (auto i = object.find(name);
          text.empty() && i != object.end() && i->is_string())
        text = i->get<std::string>();
  if (text.empty())
    text = body;
  std::string line;
  // Redact before cutting: half a secret is still a secret.
  for (unsigned char c : redacted(text.substr(0, 4 * shown_characters))) {
    auto blank = c <= ' ' || c == 127;
    if (!blank)
      line += static_cast<char>(c);
    else if (!line.empty() && line.back() != ' ')
      line += ' ';
  }
  while (line.ends_with(' '))
    line.pop_back();
  if (line.size() <= shown_characters)
    return line;
  return std::string{cut_text(line, shown_characters)} + "...";
}

std::string subject_of(const http_request& x) {
  return x.method + " " + shown_url(x.url);
}

} // namespace

status_meaning meaning_of(int status, reply_author author) noexcept {
  using enum sink_failure::kind;
  switch (status) {
    case 401:
    case 403:
    case 407:
      return {permanent};
    case 404:
    case 405:
    case 410:
    case 421:
      if (author == reply_author::service)
        return {rejected};
      return {transient, true};
    case 408:
    case 425:
    case 429:
      return {transient};
    case 501:
    case 505:
      return {rejected};
    default:
      if (status >= 500)
        return {transient, status == 500};
      return {status < 400 ? permanent : rejected};
  }
}

sink_failure failure_of(const http_request& request, const http_failure& x) {
  using enum http_failure::kind;
  sink_failure result;
  if (x.what == untrusted)
    result.what = sink_failure::kind::permanent;
  else if (x.what == unusable)
    result.what = sink_failure::kind::rejected;
  result.suspect = x.what == unreadable;
  auto code = x.what == cancelled ? ec::stopped
              : x.what == timeout ? ec::timeout
                                  : ec::protocol;
  auto text = subject_of(request) + ": " + redacted(x.text);
  if (x.what == untrusted)
    text += "; REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE or SSL_CERT_FILE can name "
            "the certificates to trust";
  result.reason = {code, text};
  return result;
}

sink_failure failure_of(const http_request& request, const http_reply& x,
                        reply_author author, const std::string& hint) {
  auto meaning = meaning_of(x.status, author);
  sink_failure result;
  result.what = meaning.what;
  result.suspect = meaning.suspect;
  result.retry_after = x.retry_after;
  auto text = concat(subject_of(request), ": status ", x.status);
  if (!x.redirect.empty())
    text += ", it is at " + shown_url(x.redirect) + " now";
  if (auto said = server_text(x.body); !said.empty())
    text += ": " + said;
  if (!hint.empty())
    text += "; " + hint;
  result.reason = {ec::protocol, text};
  return result;
}

} // namespace troupe::internal
