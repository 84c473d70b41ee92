#include "troupe/callbacks/mlflow/mlflow_names.hpp"

#include <algorithm>
#include <clocale>
#include <cmath>
#include <cstdint>
#include <cwctype>
#include <vector>

#include "troupe/callbacks/encoding/text.hpp"

namespace troupe {

namespace {

bool continues(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

struct text_writer {
  std::string operator()(bool x) const { return x ? "true" : "false"; }

  std::string operator()(std::int64_t x) const {
    std::string result;
    append_number(result, x);
    return result;
  }

  std::string operator()(double x) const {
    if (std::isnan(x))
      return "nan";
    if (std::isinf(x))
      return x > 0 ? "inf" : "-inf";
    std::string result;
    append_number(result, x);
    return result;
  }

  std::string operator()(const std::string& x) const { return utf8_text(x); }
};

// Whether *x*, one character in UTF-8, is a letter or a digit of any script.
bool is_letter(std::string_view x) {
  static auto locale = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  constexpr unsigned char first_bits[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
  wint_t code = static_cast<unsigned char>(x[0]) & first_bits[x.size()];
  for (auto c : x.substr(1))
    code = code << 6 | (static_cast<unsigned char>(c) & 0x3F);
  return locale != locale_t{} && ::iswalnum_l(code, locale);
}

// The characters of *text*, which is UTF-8.
std::vector<std::string_view> characters_of(std::string_view text) {
  std::vector<std::string_view> result;
  for (std::size_t i = 0; i < text.size();) {
    auto end = i + 1;
    while (end < text.size() && continues(text[end]))
      ++end;
    result.push_back(text.substr(i, end - i));
    i = end;
  }
  return result;
}

std::string with_plain_characters(std::string_view name) {
  std::string result;
  for (auto c : characters_of(name)) {
    constexpr std::string_view others = "_-.:/ ";
    auto allowed = is_letter(c) || others.find(c) != others.npos;
    result += allowed ? c : "_";
  }
  return result;
}

// The parts of a path between slashes.
std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> result{""};
  for (auto c : path)
    if (c == '/')
      result.emplace_back();
    else
      result.back() += c;
  return result;
}

// Replaces empty parts, `.` and `..`.
std::string as_plain_path(const std::string& path) {
  std::string result;
  for (auto& part : parts_of(path)) {
    if (part.empty() || part == "." || part == "..")
      part.assign(std::max<std::size_t>(part.size(), 1), '_');
    result += (result.empty() ? "" : "/") + part;
  }
  return result;
}

} // namespace

std::string mlflow_text(const metric_value& x) {
  return std::visit(text_writer{}, x.variant());
}

std::string cut_text(const std::string& text, std::size_t limit,
                     std::string_view marker) {
  if (text.size() <= limit)
    return text;
  auto end = limit - marker.size();
  while (end > 0 && continues(text[end]))
    --end;
  return text.substr(0, end).append(marker);
}

std::string artifact_path(std::string_view name) {
  auto result = as_plain_path(utf8_text(name));
  std::ranges::replace_if(
    result,
    [](unsigned char c) {
      return c < ' ' || c == 127 || c == '#' || c == '%' || c == '\\';
    },
    '_');
  return result;
}

std::string clean_mlflow_name(std::string_view name) {
  auto result = cut_text(as_plain_path(with_plain_characters(utf8_text(name))),
                         max_mlflow_name, "");
  if (result.ends_with('/'))
    result.back() = '_';
  return result;
}

std::string mlflow_name_mark(std::string_view name) {
  std::uint32_t hash = 2166136261u; // FNV-1a
  for (unsigned char c : name)
    hash = (hash ^ c) * 16777619u;
  std::string result = "_";
  for (int shift = 28; shift >= 0; shift -= 4)
    result += "0123456789abcdef"[hash >> shift & 15];
  return result;
}

mlflow_names::mlflow_names(map_type changed) : changed_(std::move(changed)) {
  for (auto& [name, given] : changed_)
    owner_[given] = name;
}

std::string mlflow_names::operator()(const std::string& name) {
  if (auto i = changed_.find(name); i != changed_.end())
    return i->second;
  auto result = clean_mlflow_name(name);
  // Names that were cut may differ only behind the cut.
  if (name.size() > max_mlflow_name
      || owner_.try_emplace(result, name).first->second != name) {
    auto mark = mlflow_name_mark(name);
    result = cut_text(result, max_mlflow_name - mark.size(), "") + mark;
    owner_[result] = name;
  }
  if (result != name)
    changed_[name] = result;
  return result;
}

} // namespace troupe
