#include "troupe/callbacks/prometheus/prometheus_text.hpp"

#include <cmath>

#include "troupe/callbacks/encoding/number_text.hpp"
#include "troupe/callbacks/encoding/utf8_text.hpp"

namespace troupe {

namespace {

// *quotes*: whether the text stands in quotes.
std::string escaped(std::string_view text, bool quotes) {
  std::string result;
  for (auto c : utf8_text(text))
    if (c == '\\')
      result += "\\\\";
    else if (c == '\n')
      result += "\\n";
    else if (c == '"' && quotes)
      result += "\\\"";
    else
      result += c;
  return result;
}

} // namespace

void prometheus_text::family(std::string_view name, std::string_view type,
                             std::string_view help) {
  family_ = name;
  text_ += "# HELP " + family_ + " " + escaped(help, false) + "\n";
  text_ += "# TYPE " + family_ + " " + std::string{type} + "\n";
}

void prometheus_text::sample(const labels& of, double value,
                             std::string_view suffix) {
  begin_sample(of, suffix);
  if (std::isnan(value))
    text_ += "NaN";
  else if (std::isinf(value))
    text_ += value > 0 ? "+Inf" : "-Inf";
  else
    append_number(text_, value);
  text_ += '\n';
}

void prometheus_text::sample(const labels& of, std::uint64_t value,
                             std::string_view suffix) {
  begin_sample(of, suffix);
  append_number(text_, value);
  text_ += '\n';
}

void prometheus_text::begin_sample(const labels& of, std::string_view suffix) {
  text_ += family_;
  text_ += suffix;
  auto separator = '{';
  for (auto& [name, value] : of) {
    text_ += separator;
    text_ += name;
    text_ += "=\"" + escaped(value, true) + "\"";
    separator = ',';
  }
  text_ += of.empty() ? " " : "} ";
}

} // namespace troupe
