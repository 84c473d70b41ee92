#include "troupe/callbacks/http/percent_encoded.hpp"

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

} // namespace troupe
