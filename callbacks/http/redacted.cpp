#include "troupe/callbacks/http/redacted.hpp"

#include <algorithm>
#include <cstdlib>
#include <regex>

namespace troupe {

namespace {

constexpr auto secret_variables = {
  "WANDB_API_KEY",         "COMET_API_KEY",
  "MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_PASSWORD",
  "DATABRICKS_TOKEN",      "DATABRICKS_CLIENT_SECRET",
  "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
};

constexpr std::size_t shortest_secret = 4;

void erase_value(std::string& text, std::string_view secret) {
  if (secret.size() < shortest_secret)
    return;
  for (auto i = text.find(secret); i != text.npos; i = text.find(secret, i + 3))
    text.replace(i, secret.size(), "***");
}

std::string without_patterns(const std::string& text) {
  constexpr auto options = std::regex::ECMAScript | std::regex::icase;
  static const std::regex user_info{"://[^/?#\\s\"']*@", options};
  static const std::regex authorization{
    "(authorization[\"']?\\s*[:=]\\s*[\"']?)(?:[a-z]+[ ]+)?[^\\s\"',}]+",
    options};
  static const std::regex scheme{"\\b(bearer|basic)\\s+[a-z0-9+/._~=-]{8,}",
                                 options};
  static const std::regex field{
    "((?:api[_-]?key|token|secret|password|signature|\\bsig)[\"']?\\s*[=:]\\s*"
    "[\"']?)[^\\s&\"',}]+",
    options};
  auto result = std::regex_replace(text, user_info, "://***@");
  result = std::regex_replace(result, authorization, "$1***");
  result = std::regex_replace(result, scheme, "$1 ***");
  return std::regex_replace(result, field, "$1***");
}

} // namespace

std::string redacted(std::string_view text) {
  return redacted(text, {});
}

std::string redacted(std::string_view text, std::string_view secret) {
  std::string result{text};
  erase_value(result, secret);
  for (const auto* name : secret_variables)
    if (const auto* value = std::getenv(name))
      erase_value(result, value);
  return without_patterns(result);
}

std::string shown_url(std::string_view url) {
  url = url.substr(0, url.find_first_of("?#"));
  auto scheme = url.find("://");
  if (scheme == url.npos)
    return redacted(url);
  auto host = scheme + 3;
  auto path = std::min(url.find('/', host), url.size());
  if (auto at = url.substr(0, path).rfind('@'); at != url.npos && at >= host)
    return redacted(std::string{url.substr(0, host)}
                    + std::string{url.substr(at + 1)});
  return redacted(url);
}

} // namespace troupe
