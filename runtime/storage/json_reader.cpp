#include "troupe/runtime/storage/json_reader.hpp"

#include <charconv>
#include <limits>

namespace troupe::json {

namespace {

std::string from_hex(std::string_view digits) {
  std::string result;
  if (digits.size() % 2 != 0)
    throw format_error{"hexadecimal digits do not come in pairs"};
  for (std::size_t i = 0; i < digits.size(); i += 2) {
    unsigned byte = 0;
    auto end = digits.data() + i + 2;
    if (std::from_chars(digits.data() + i, end, byte, 16).ptr != end)
      throw format_error{"'" + std::string{digits.substr(i, 2)}
                         + "' is not hexadecimal"};
    result += static_cast<char>(byte);
  }
  return result;
}

// A name that is not UTF-8 stands as "\0" and hexadecimal digits.
std::string to_name(const std::string& x) {
  return !x.empty() && x[0] == '\0' ? from_hex(std::string_view{x}.substr(1))
                                    : x;
}

metric_value to_special_value(const document& x) {
  if (x.contains("bytes"))
    return to_text(x);
  auto name = to_text(field(x, "float"));
  if (name == "nan")
    return std::numeric_limits<double>::quiet_NaN();
  if (name == "inf")
    return std::numeric_limits<double>::infinity();
  if (name == "-inf")
    return -std::numeric_limits<double>::infinity();
  throw format_error{"'" + name + "' is no floating-point number"};
}

} // namespace

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
    throw format_error{x.dump() + " is no integer >= 0"};
  return x.get<std::uint64_t>();
}

std::string to_text(const document& x) {
  if (x.is_object())
    return from_hex(to_text(field(x, "bytes")));
  if (!x.is_string())
    throw format_error{x.dump() + " is no text"};
  return x.get<std::string>();
}

std::uint64_t to_checksum(const document& x) {
  auto digits = to_text(x);
  std::uint64_t result = 0;
  auto end = digits.data() + digits.size();
  if (digits.size() != 16
      || std::from_chars(digits.data(), end, result, 16).ptr != end)
    throw format_error{"'" + digits + "' is no checksum"};
  return result;
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
  throw format_error{x.dump() + " is no metric"};
}

metrics to_metrics(const document& x) {
  if (!x.is_object())
    throw format_error{"metrics are no object"};
  metrics result;
  for (auto& [name, value] : x.items())
    result[to_name(name)] = to_value(value);
  return result;
}

void check_format(const document& x, int known, const char* name,
                  std::optional<int> oldest) {
  auto found = to_unsigned(field(x, name));
  if (found > static_cast<std::uint64_t>(known)
      || found < static_cast<std::uint64_t>(oldest.value_or(known)))
    throw unknown_format{"has format " + std::to_string(found)
                         + ", this version reads format "
                         + std::to_string(known)};
}

} // namespace troupe::json
