#include "troupe/trainers/config/config_value.hpp"

#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>

#include "troupe/runtime/storage/json.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

template <class... Cases>
struct cases : Cases... {
  using Cases::operator()...;
};

void append_config(std::string& out, const config_value& x);

void append_items(std::string& out, const config_value::list& all) {
  json::append_list(out, all, append_config);
}

void append_fields(std::string& out, const config_value::table& all) {
  json::append_object(out, all, append_json_string, append_config);
}

void append_config_real(std::string& out, double x) {
  if (std::isfinite(x))
    append_real(out, x);
  else
    out += json_words.of(x);
}

void append_config(std::string& out, const config_value& x) {
  std::visit(
    cases{[&](std::monostate) { out += "null"; },
          [&](bool y) { out += y ? "true" : "false"; },
          [&](std::int64_t y) { append_number(out, y); },
          [&](std::uint64_t y) { append_number(out, y); },
          [&](double y) { append_config_real(out, y); },
          [&](const std::string& y) { append_json_string(out, y); },
          [&](const config_value::list& y) { append_items(out, y); },
          [&](const config_value::table& y) { append_fields(out, y); }},
    x.value);
}

/// Whether *text* begins with a name that cereal gives to what has none, such
/// as `"value0":`.
bool begins_with_number_name(std::string_view text) {
  constexpr std::string_view begin = "\"value";
  if (!text.starts_with(begin))
    return false;
  auto end = text.find_first_not_of("0123456789", begin.size());
  return end != text.npos && end > begin.size()
         && text.substr(end).starts_with("\":");
}

bool lacks_names(std::string_view json) {
  for (std::size_t i = 0; i < json.size(); ++i) {
    if (json[i] != '"')
      continue;
    if (begins_with_number_name(json.substr(i)))
      return true;
    for (++i; i < json.size() && json[i] != '"'; ++i)
      if (json[i] == '\\')
        ++i;
  }
  return false;
}

} // namespace

double shortest_double(float x) {
  char text[32];
  auto written = std::to_chars(text, text + sizeof text, x);
  double result = 0;
  std::from_chars(text, written.ptr, result);
  // The text of the largest float is above it.
  auto in_range = std::abs(result) <= std::numeric_limits<float>::max();
  return in_range && static_cast<float>(result) == x ? result : x;
}

std::string json_text(const config_value& x) {
  std::string result;
  append_config(result, x);
  return result;
}

std::string named_config_text(std::string json) {
  if (!lacks_names(json))
    return json;
  return R"({"config":{"notice":"the fields of the config have no names: )"
         R"(put TROUPE_FIELDS(...) with its fields into the struct"}})";
}

} // namespace troupe::internal
