#include "troupe/callbacks/mlflow/mlflow_text.hpp"

#include <cmath>

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

} // namespace troupe
