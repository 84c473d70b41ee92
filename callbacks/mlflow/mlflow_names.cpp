#include "troupe/callbacks/mlflow/mlflow_names.hpp"

#include <algorithm>
#include <clocale>
#include <cstdint>
#include <cwctype>
#include <vector>

#include "troupe/callbacks/encoding/text.hpp"
#include "troupe/callbacks/mlflow/mlflow_text.hpp"

namespace troupe {

namespace {

/// Whether the character of UTF-8 *x* is a letter or a digit of any script.
bool is_letter(std::string_view x) {
  static const auto locale = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  constexpr unsigned char first_bits[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
  wint_t code = static_cast<unsigned char>(x[0]) & first_bits[x.size()];
  for (auto c : x.substr(1))
    code = code << 6 | (static_cast<unsigned char>(c) & 0x3F);
  return locale != locale_t{} && ::iswalnum_l(code, locale);
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

/// The parts of a path between slashes.
std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> result{""};
  for (auto c : path)
    if (c == '/')
      result.emplace_back();
    else
      result.back() += c;
  return result;
}

/// Neither empty parts nor ones that lead up or nowhere.
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
  for (const auto& [name, given] : changed_)
    owner_[given] = name;
}

std::string mlflow_names::operator()(const std::string& name) {
  if (auto i = changed_.find(name); i != changed_.end())
    return i->second;
  auto result = clean_mlflow_name(name);
  // Names that were cut differ at their end.
  if (name.size() > max_mlflow_name
      || owner_.try_emplace(result, name).first->second != name) {
    const auto mark = mlflow_name_mark(name);
    result = cut_text(result, max_mlflow_name - mark.size(), "") + mark;
    owner_[result] = name;
  }
  if (result != name)
    changed_[name] = result;
  return result;
}

} // namespace troupe
