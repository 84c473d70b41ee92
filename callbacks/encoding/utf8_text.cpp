#include "troupe/callbacks/encoding/utf8_text.hpp"

#include <cstddef>

namespace troupe {

namespace {

constexpr std::string_view replacement = "\xef\xbf\xbd";

struct sequence {
  std::size_t size; // bytes that belong together
  bool valid;
};

// The second byte decides about overlong forms, surrogates and what lies above
// U+10FFFF.
bool can_follow(unsigned char first, unsigned char second) noexcept {
  switch (first) {
    case 0xe0:
      return second >= 0xa0 && second <= 0xbf;
    case 0xed:
      return second >= 0x80 && second <= 0x9f;
    case 0xf0:
      return second >= 0x90 && second <= 0xbf;
    case 0xf4:
      return second >= 0x80 && second <= 0x8f;
    default:
      return second >= 0x80 && second <= 0xbf;
  }
}

sequence next_sequence(std::string_view text) noexcept {
  auto byte = [&](std::size_t i) {
    return static_cast<unsigned char>(text[i]);
  };
  const auto first = byte(0);
  if (first < 0x80)
    return {1, true};
  if (first < 0xc2 || first > 0xf4)
    return {1, false};
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  for (std::size_t i = 1; i < length; ++i) {
    const auto fits = i < text.size()
                      && (i == 1 ? can_follow(first, byte(1))
                                 : byte(i) >= 0x80 && byte(i) <= 0xbf);
    if (!fits)
      return {i, false};
  }
  return {length, true};
}

} // namespace

void append_utf8(std::string& out, std::string_view text) {
  while (!text.empty()) {
    const auto [size, valid] = next_sequence(text);
    out += valid ? text.substr(0, size) : replacement;
    text.remove_prefix(size);
  }
}

std::string utf8_text(std::string_view text) {
  std::string result;
  append_utf8(result, text);
  return result;
}

} // namespace troupe
