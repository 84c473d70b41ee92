#include "troupe/runtime/process/secret_variables.hpp"

#include <algorithm>

#include <unistd.h>

namespace troupe {

bool is_variable_of(std::string_view name, std::string_view pattern) noexcept {
  auto star = pattern.find('*');
  if (star == pattern.npos)
    return name == pattern;
  if (!name.starts_with(pattern.substr(0, star)))
    return false;
  name.remove_prefix(star);
  pattern.remove_prefix(star + 1);
  // What comes before the next star is best found as early as possible.
  for (star = pattern.find('*'); star != pattern.npos;
       star = pattern.find('*')) {
    auto at = name.find(pattern.substr(0, star));
    if (at == name.npos)
      return false;
    name.remove_prefix(at + star);
    pattern.remove_prefix(star + 1);
  }
  return name.ends_with(pattern);
}

bool is_secret_variable(std::string_view name) noexcept {
  return std::ranges::any_of(secret_variables, [&](std::string_view pattern) {
    return is_variable_of(name, pattern);
  });
}

std::vector<std::string> secret_values() {
  std::vector<std::string> result;
  for (auto variable = environ; variable && *variable; ++variable) {
    std::string_view text{*variable};
    auto sign = text.find('=');
    if (sign != text.npos && is_secret_variable(text.substr(0, sign)))
      result.emplace_back(text.substr(sign + 1));
  }
  // The longest first: one may be a part of another.
  std::ranges::sort(result, std::ranges::greater{}, &std::string::size);
  return result;
}

} // namespace troupe
