#include "troupe/runtime/process/secret_variables.hpp"

#include <algorithm>
#include <mutex>
#include <set>

#include <unistd.h>

namespace troupe {

namespace {

/// The shortest line of a secret that is one by itself.
constexpr std::size_t shortest_line = 8;

/// Calls *use* with each password, or token, in the URLs of *value*.
template <class Use>
void for_each_login(std::string_view value, const Use& use) {
  for (auto i = value.find("://"); i != value.npos; i = value.find("://")) {
    auto is_web = value.substr(0, i).ends_with("http")
                  || value.substr(0, i).ends_with("https");
    value.remove_prefix(i + 3);
    auto user_info = value.substr(0, value.find_first_of("/?# \t\n\"'"));
    user_info =
      user_info.substr(0, std::min(user_info.rfind('@'), user_info.size()));
    if (user_info.size() == value.size() || value[user_info.size()] != '@')
      continue;
    auto colon = user_info.find(':');
    auto password = colon != user_info.npos ? user_info.substr(colon + 1)
                    : is_web                ? user_info
                                            : std::string_view{};
    if (!password.empty())
      use(password);
  }
}

/// What runs of this process gave their ranks. Never destroyed: a thread that
/// is left behind may ask at exit.
struct noted_secrets {
  std::mutex mutex;
  std::set<std::string, std::less<>> values;

  static noted_secrets& instance() {
    static auto& result = *new noted_secrets;
    return result;
  }
};

/// Calls *use* with each secret in the variable *name*.
template <class Use>
void for_each_secret(std::string_view name, std::string_view value,
                     const Use& use) {
  if (!is_secret_variable(name)) {
    for_each_login(value, use);
    return;
  }
  use(value);
  for_each_login(value, use);
  if (value.find('\n') == value.npos)
    return;
  while (!value.empty()) {
    auto line = value.substr(0, value.find('\n'));
    if (line.size() >= shortest_line)
      use(line);
    value.remove_prefix(std::min(line.size() + 1, value.size()));
  }
}

} // namespace

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

bool holds_login(std::string_view value) noexcept {
  auto result = false;
  for_each_login(value, [&](std::string_view) { result = true; });
  return result;
}

void note_secrets(const std::map<std::string, std::string>& environment) {
  auto& noted = noted_secrets::instance();
  std::lock_guard guard{noted.mutex};
  for (auto& [name, value] : environment)
    for_each_secret(name, value,
                    [&](std::string_view x) { noted.values.emplace(x); });
}

std::vector<std::string> secret_values() {
  std::vector<std::string> result;
  auto add = [&](std::string_view x) { result.emplace_back(x); };
  {
    auto& noted = noted_secrets::instance();
    std::lock_guard guard{noted.mutex};
    std::ranges::for_each(noted.values, add);
  }
  for (auto variable = environ; variable && *variable; ++variable) {
    std::string_view text{*variable};
    if (auto sign = text.find('='); sign != text.npos)
      for_each_secret(text.substr(0, sign), text.substr(sign + 1), add);
  }
  std::ranges::sort(result, std::ranges::greater{}, &std::string::size);
  return result;
}

} // namespace troupe
