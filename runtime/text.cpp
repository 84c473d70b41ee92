#include "troupe/runtime/text.hpp"

namespace troupe {

std::string_view cut_text(std::string_view text, std::size_t size) noexcept {
  if (text.size() <= size)
    return text;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80)
    --size;
  return text.substr(0, size);
}

std::string cut_reason(std::string text) {
  auto size = text.size();
  if (size <= max_reason_size)
    return text;
  text.resize(cut_text(text, max_reason_size).size());
  return text + "… (cut; it has " + std::to_string(size) + " bytes)";
}

void append_hex(std::string& out, std::string_view bytes) {
  static constexpr char digits[] = "0123456789abcdef";
  for (unsigned char c : bytes) {
    out += digits[c >> 4];
    out += digits[c & 0xf];
  }
}

} // namespace troupe
