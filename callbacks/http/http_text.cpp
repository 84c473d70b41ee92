#include "troupe/callbacks/http/http_text.hpp"

#include <algorithm>
#include <charconv>

#include <curl/curl.h>

namespace troupe {

std::string percent_encoded(std::string_view text, std::string_view kept) {
  constexpr std::string_view plain =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string result;
  for (auto c : text) {
    if (plain.find(c) != plain.npos || kept.find(c) != kept.npos) {
      result += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    result += {'%', digits[byte >> 4], digits[byte & 15]};
  }
  return result;
}

std::optional<std::chrono::seconds>
retry_after(const std::string& value,
            std::chrono::system_clock::time_point now) {
  using std::chrono::seconds;
  long long count = 0;
  const auto* end = value.data() + value.size();
  if (auto [rest, failed] = std::from_chars(value.data(), end, count);
      failed == std::errc{} && rest == end) {
    // A number of seconds.
  } else if (failed == std::errc::result_out_of_range && rest == end) {
    count = longest_retry_after.count();
  } else {
    auto date = curl_getdate(value.c_str(), nullptr);
    if (date < 0)
      return std::nullopt;
    count = date - std::chrono::system_clock::to_time_t(now);
  }
  return std::clamp(seconds{count}, seconds{0}, longest_retry_after);
}

} // namespace troupe
