#include "troupe/runtime/storage/json.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "troupe/runtime/text.hpp"
#include "troupe/runtime/whole_number.hpp"

namespace troupe::internal::json {

namespace {

// Whether *x* stands between quotes as it is.
bool is_plain(std::string_view x) noexcept {
  return std::ranges::all_of(x, [](unsigned char c) {
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
  });
}

void append_double(std::string& out, double x) {
  if (std::isfinite(x)) {
    append_real(out, x);
  } else {
    out += R"({"float":")";
    out += plain_words.of(x);
    out += R"("})";
  }
}

void append_plain(std::string& out, std::string_view text) {
  out += '"';
  out += text;
  out += '"';
}

// Appends *text*, if it is UTF-8; returns whether it is.
bool append_valid(std::string& out, std::string_view text) {
  if (is_plain(text)) {
    append_plain(out, text);
    return true;
  }
  if (!is_utf8(text))
    return false;
  append_json_string(out, text);
  return true;
}

} // namespace

void append_name(std::string& out, std::string_view name) {
  if (append_valid(out, name))
    return;
  out += R"("\u0000)";
  append_hex(out, name);
  out += '"';
}

void append(std::string& out, std::string_view text) {
  if (append_valid(out, text))
    return;
  out += R"({"bytes":")";
  append_hex(out, text);
  out += R"("})";
}

void append(std::string& out, std::uint64_t x) {
  append_number(out, x);
}

namespace {

// Any variant of the four kinds of a metric.
template <class Variant>
void append_value(std::string& out, const Variant& value) {
  append_scalar(
    out, value, [&](double number) { append_double(out, number); },
    [&](std::string_view text) { append(out, text); });
}

template <class Variant>
void append_field(std::string& out, std::string_view separator,
                  std::string_view name, const Variant& value) {
  out += separator;
  append_name(out, name);
  out += ':';
  append_value(out, value);
}

} // namespace

void append(std::string& out, const metric_value& x) {
  append_value(out, x.variant());
}

void append(std::string& out, const metrics& x) {
  out += '{';
  std::string_view separator;
  for (auto& [name, value] : x) {
    append_field(out, separator, name, value.variant());
    separator = ",";
  }
  out += '}';
}

void append(std::string& out, const packed_metrics& x) {
  out += '{';
  std::string_view separator;
  x.for_each([&](std::string_view name, const packed_metrics::value& value) {
    append_field(out, separator, name, value);
    separator = ",";
  });
  out += '}';
}

void append_us(std::string& out, double seconds) {
  append(out, static_cast<std::uint64_t>(
                std::llround(std::max(seconds, 0.0) * 1e6)));
}

namespace {

std::string from_hex(std::string_view digits) {
  std::string result;
  if (digits.size() % 2 != 0)
    throw format_error{"hexadecimal digits do not come in pairs"};
  for (std::size_t i = 0; i < digits.size(); i += 2) {
    auto byte = whole_number<unsigned char>(digits.substr(i, 2), 16);
    if (!byte)
      throw format_error{"'" + std::string{digits.substr(i, 2)}
                         + "' is not hexadecimal"};
    result += static_cast<char>(*byte);
  }
  return result;
}

metric_value to_special_value(const document& x) {
  if (x.contains("bytes"))
    return to_text(x);
  auto name = to_text(field(x, "float"));
  if (auto value = plain_words.value(name))
    return *value;
  throw format_error{"'" + name + "' is not a floating-point number"};
}

} // namespace

document parse(std::string_view text) {
  return document::parse(text, nullptr, /*allow_exceptions=*/false);
}

ordered_document value_of(const metric_value& x) {
  auto number = std::get_if<double>(&x.variant());
  if (!number || std::isfinite(*number))
    return std::visit([](auto& value) { return ordered_document(value); },
                      x.variant());
  return json_words.of(*number);
}

const document& field(const document& object, const char* name) {
  if (!object.is_object())
    throw format_error{"there is no object around field '" + std::string{name}
                       + "'"};
  auto i = object.find(name);
  if (i == object.end())
    throw format_error{"field '" + std::string{name} + "' is missing"};
  return *i;
}

std::uint64_t to_unsigned(const document& x) {
  if (!x.is_number_unsigned())
    throw format_error{x.dump() + " is not an integer >= 0"};
  return x.get<std::uint64_t>();
}

std::string to_text(const document& x) {
  if (x.is_object())
    return from_hex(to_text(field(x, "bytes")));
  if (!x.is_string())
    throw format_error{x.dump() + " is not a text"};
  return x.get<std::string>();
}

std::uint64_t to_checksum(const document& x) {
  auto digits = to_text(x);
  auto result = whole_number<std::uint64_t>(digits, 16);
  if (digits.size() != 16 || !result)
    throw format_error{"'" + digits + "' is not a checksum"};
  return *result;
}

metric_value to_value(const document& x) {
  if (x.is_boolean())
    return x.get<bool>();
  if (x.is_number_float())
    return x.get<double>();
  if (x.is_number_unsigned()
      && x.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max())
    throw format_error{x.dump() + " does not fit 64 bits"};
  if (x.is_number_integer())
    return x.get<std::int64_t>();
  if (x.is_string())
    return x.get<std::string>();
  if (x.is_object())
    return to_special_value(x);
  throw format_error{x.dump() + " is not a metric"};
}

std::string to_name(const std::string& x) {
  return !x.empty() && x[0] == '\0' ? from_hex(std::string_view{x}.substr(1))
                                    : x;
}

metrics to_metrics(const document& x) {
  if (!x.is_object())
    throw format_error{"metrics are not an object"};
  metrics result;
  for (auto& [name, value] : x.items())
    result[to_name(name)] = to_value(value);
  return result;
}

unknown_format unknown_code(const document& x) {
  return unknown_format{"has a code " + x.dump()
                        + " that this version does not know"};
}

void check_format(const document& x, int known, const char* name,
                  std::optional<int> oldest) {
  auto found = to_unsigned(field(x, name));
  if (found > static_cast<std::uint64_t>(known)
      || found < static_cast<std::uint64_t>(oldest.value_or(known)))
    throw unknown_format{
      concat("has format ", found, ", this version reads format ", known)};
}

} // namespace troupe::internal::json
