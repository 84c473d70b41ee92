#include "troupe/callbacks/terminal_text.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

namespace troupe {

namespace {

struct character {
  std::string_view bytes; // of one code point; one byte if the UTF-8 is broken
  char32_t code = 0;
  bool valid = false;
};

constexpr bool is_continuation(unsigned char x) {
  return (x & 0xC0) == 0x80;
}

/// The first character of *text*, which is not empty.
character first_character(std::string_view text) {
  auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80)
    return {text.substr(0, 1), lead, true};
  std::size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  character broken{text.substr(0, 1)};
  if (lead < 0xC2 || lead > 0xF4 || text.size() < size)
    return broken;
  char32_t code = lead & (0x7F >> size);
  for (std::size_t i = 1; i < size; ++i) {
    auto byte = static_cast<unsigned char>(text[i]);
    if (!is_continuation(byte))
      return broken;
    code = (code << 6) | (byte & 0x3F);
  }
  bool too_long = (size == 3 && code < 0x800) || (size == 4 && code < 0x10000);
  bool surrogate = code >= 0xD800 && code < 0xE000;
  if (too_long || surrogate || code > 0x10FFFF)
    return broken;
  return {text.substr(0, size), code, true};
}

struct range {
  char32_t first;
  char32_t last;
};

template <std::size_t N>
bool in_any(const std::array<range, N>& ranges, char32_t code) {
  return std::ranges::any_of(ranges, [code](const range& x) {
    return code >= x.first && code <= x.last;
  });
}

// The blocks that matter on terminals, not all of Unicode's tables: combining
// marks, joiners and variation selectors; East Asian wide forms and emoji.
constexpr std::array<range, 8> zero_width{{{0x0300, 0x036F},
                                           {0x0483, 0x0489},
                                           {0x0591, 0x05BD},
                                           {0x1AB0, 0x1AFF},
                                           {0x200B, 0x200F},
                                           {0x20D0, 0x20FF},
                                           {0xFE00, 0xFE0F},
                                           {0xFE20, 0xFE2F}}};
constexpr std::array<range, 9> double_width{{{0x1100, 0x115F},
                                             {0x2E80, 0x303E},
                                             {0x3041, 0xA4CF},
                                             {0xAC00, 0xD7A3},
                                             {0xF900, 0xFAFF},
                                             {0xFF00, 0xFF60},
                                             {0xFFE0, 0xFFE6},
                                             {0x1F300, 0x1FAFF},
                                             {0x20000, 0x3FFFD}}};

bool is_control(char32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x2028
         || code == 0x2029 || (code >= 0x202A && code <= 0x202E);
}

int width_of(const character& x) {
  if (!x.valid || is_control(x.code))
    return 1; // shown as '?' or a space
  if (in_any(zero_width, x.code))
    return 0;
  return in_any(double_width, x.code) ? 2 : 1;
}

std::string_view shown(const character& x) {
  if (!x.valid)
    return "?";
  if (x.code == '\n' || x.code == '\t')
    return " ";
  return is_control(x.code) ? "?" : x.bytes;
}

} // namespace

int display_width(std::string_view text) {
  int columns = 0;
  while (!text.empty()) {
    auto next = first_character(text);
    columns += width_of(next);
    text.remove_prefix(next.bytes.size());
  }
  return columns;
}

std::string fit_to_line(std::string_view text, int columns) {
  std::string line;
  int used = 0;
  std::size_t cut = 0; // bytes of the line that leave a column for the dots
  while (!text.empty()) {
    auto next = first_character(text);
    auto width = width_of(next);
    if (used + width > columns) {
      line.resize(cut);
      return columns > 0 ? line + "…" : line;
    }
    line += shown(next);
    used += width;
    if (used < columns)
      cut = line.size();
    text.remove_prefix(next.bytes.size());
  }
  return line;
}

} // namespace troupe
