#include "troupe/callbacks/encoding/percent.hpp"

#include "troupe/runtime/text.hpp"
#include "troupe/runtime/whole_number.hpp"

namespace troupe::internal {

std::string percent_encoded(std::string_view text, std::string_view kept) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  constexpr std::string_view plain = "-._~";
  std::string result;
  for (auto c : text) {
    if (is_letter(c) || is_digit(c) || plain.find(c) != plain.npos
        || kept.find(c) != kept.npos) {
      result += c;
    } else {
      auto byte = static_cast<unsigned char>(c);
      result += {'%', digits[byte >> 4], digits[byte & 15]};
    }
  }
  return result;
}

std::string percent_decoded(std::string_view text, plus_sign plus) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    auto digits = text.substr(i + 1, 2);
    auto byte = text[i] == '%' && digits.size() == 2
                  ? whole_number<unsigned char>(digits, 16)
                  : std::nullopt;
    if (byte) {
      result += static_cast<char>(*byte);
      i += 2;
    } else {
      result += text[i] == '+' && plus == plus_sign::blank ? ' ' : text[i];
    }
  }
  return result;
}

} // namespace troupe::internal
