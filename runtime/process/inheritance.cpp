#include "troupe/runtime/process/inheritance.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <map>

#include "troupe/runtime/process/secrets.hpp"

namespace troupe::internal {
namespace {

std::map<std::string_view, std::string_view>
values_by_name(const std::vector<std::string>& variables) {
  std::map<std::string_view, std::string_view> result;
  for (std::string_view x : variables)
    if (auto sign = x.find('='); sign != x.npos)
      result.emplace(x.substr(0, sign), x.substr(sign + 1));
  return result;
}

// `umask` itself tells it only by changing it, for all threads.
std::optional<mode_t> own_umask() {
  unique_fd file{::open("/proc/self/status", O_RDONLY | O_CLOEXEC)};
  char bytes[256] = {}; // It is in the second line.
  auto n = file ? ::read(file.get(), bytes, sizeof(bytes)) : -1;
  std::string_view text{bytes,
                        static_cast<std::size_t>(std::max<ssize_t>(n, 0))};
  constexpr std::string_view key = "\nUmask:\t";
  auto at = text.find(key);
  if (at == text.npos)
    return std::nullopt;
  text.remove_prefix(at + key.size());
  mode_t result = 0;
  auto end = text.data() + text.size();
  if (std::from_chars(text.data(), end, result, 8).ec != std::errc{})
    return std::nullopt;
  return result;
}

} // namespace

environment_changes changes_between(const std::vector<std::string>& before,
                                    const std::vector<std::string>& after) {
  environment_changes result;
  if (before == after) // Nearly always.
    return result;
  auto old_values = values_by_name(before);
  auto new_values = values_by_name(after);
  for (auto [name, value] : new_values)
    if (auto old = old_values.find(name);
        old == old_values.end() || old->second != value)
      result.set.emplace_back(name, value);
  for (auto [name, value] : old_values)
    if (!new_values.contains(name))
      result.removed.emplace_back(name);
  return result;
}

std::vector<std::string> own_variables() {
  std::vector<std::string> result;
  for (auto variable = environ; variable && *variable; ++variable)
    result.emplace_back(*variable);
  return result;
}

std::optional<std::string_view>
inheritance::find(std::string_view name) const noexcept {
  for (std::string_view x : environment)
    if (x.starts_with(name) && x.substr(name.size()).starts_with('='))
      return x.substr(name.size() + 1);
  return std::nullopt;
}

expected<std::shared_ptr<const inheritance>>
inherit(const std::vector<std::string>& variables) {
  auto result = std::make_shared<inheritance>();
  result->environment = own_variables();
  result->variables = changes_between(variables, result->environment);
  auto is_kept_back = [](const auto& x) {
    return is_secret_variable(x.first) || holds_login(x.second)
           || std::ranges::count(tracker_addresses, std::string_view{x.first})
                > 0;
  };
  auto& [set, removed] = result->variables;
  for (const auto& x : set)
    if (is_kept_back(x)) // A spawner may have a value from before.
      removed.push_back(x.first);
  std::erase_if(set, is_kept_back);
  // First: the folder keeps the last descriptor, or says that there is none.
  result->umask = own_umask();
  result->folder.reset(::open(".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!result->folder && (errno == EMFILE || errno == ENFILE))
    return system_failure(ec::spawn, "cannot open the current folder");
  return result;
}

} // namespace troupe::internal
