#include "troupe/runtime/process/secrets.hpp"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// The shortest line of a secret that counts as a secret itself.
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

/// A value that a run of this process gave its ranks.
struct noted_secret {
  std::string value;
  const noted_secret* next;
};

/// A list that only grows: an abandoned thread may read it at exit, and a
/// process that is forked while a thread adds to it reads it without a lock.
std::atomic<const noted_secret*> noted_secrets;

void note_secret(std::string_view value) {
  auto first = noted_secrets.load();
  for (auto x = first; x; x = x->next)
    if (x->value == value)
      return;
  auto added = new noted_secret{std::string{value}, first};
  while (!noted_secrets.compare_exchange_weak(added->next, added))
    continue;
}

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
  // The text before the next star is matched as early as possible.
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
  for (auto& [name, value] : environment)
    for_each_secret(name, value, note_secret);
}

std::vector<std::string> secret_values() {
  std::vector<std::string> result;
  auto add = [&](std::string_view x) { result.emplace_back(x); };
  for (auto x = noted_secrets.load(); x; x = x->next)
    add(x->value);
  for (auto variable = environ; variable && *variable; ++variable) {
    std::string_view text{*variable};
    if (auto sign = text.find('='); sign != text.npos)
      for_each_secret(text.substr(0, sign), text.substr(sign + 1), add);
  }
  std::ranges::sort(result, std::ranges::greater{}, &std::string::size);
  return result;
}

expected<void> fill_random(std::span<std::byte> bytes) {
  if (::getrandom(bytes.data(), bytes.size(), 0)
      != static_cast<ssize_t>(bytes.size()))
    return system_failure(ec::spawn, "the system gives no random numbers");
  return {};
}

expected<std::string> random_hex(std::size_t bytes) {
  std::string random(bytes, '\0');
  TROUPE_TRY_VOID(fill_random(std::as_writable_bytes(std::span{random})));
  std::string result;
  append_hex(result, random);
  return result;
}

} // namespace troupe::internal
