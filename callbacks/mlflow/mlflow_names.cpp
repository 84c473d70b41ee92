#include "troupe/callbacks/mlflow/mlflow_names.hpp"

#include <algorithm>
#include <clocale>
#include <cstdint>
#include <cwctype>
#include <vector>

#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

// Whether *code* is a letter or a digit of any script.
bool is_letter(char32_t code) {
  static auto locale = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  return locale != locale_t{} && ::iswalnum_l(code, locale);
}

// For *name* in valid UTF-8.
std::string with_plain_characters(std::string_view name) {
  std::string result;
  while (!name.empty()) {
    constexpr std::string_view others = "_-.:/ ";
    auto [bytes, code, valid] = first_utf8_character(name);
    auto allowed = is_letter(code) || others.find(bytes) != others.npos;
    result += allowed ? bytes : "_";
    name.remove_prefix(bytes.size());
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
    append_item(result, part, "/");
  }
  return result;
}

} // namespace

std::string mlflow_text(const metric_value& x) {
  std::string result;
  append_scalar(
    result, x.variant(), [&](double number) { append_plain(result, number); },
    [&](std::string_view text) { append_utf8(result, text); });
  return result;
}

std::string cut_mlflow_text(const std::string& text, std::size_t limit) {
  constexpr std::string_view mark = "... [cut]";
  if (text.size() <= limit)
    return text;
  return std::string{cut_text(text, limit - mark.size())}.append(mark);
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
  auto path = as_plain_path(with_plain_characters(utf8_text(name)));
  std::string result{cut_text(path, max_mlflow_name)};
  if (result.ends_with('/'))
    result.back() = '_';
  return result;
}

std::string mlflow_name_mark(std::string_view name) {
  std::uint32_t hash = 2166136261u; // FNV-1a
  for (unsigned char c : name)
    hash = (hash ^ c) * 16777619u;
  std::string result = "_";
  append_hex(result, hash);
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
    result.resize(cut_text(result, max_mlflow_name - mark.size()).size());
    result += mark;
    owner_[result] = name;
  }
  if (result != name)
    changed_[name] = result;
  return result;
}

} // namespace troupe::internal
