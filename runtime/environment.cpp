#include "troupe/runtime/environment.hpp"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "troupe/runtime/near_names.hpp"

namespace troupe::internal {

namespace {

constexpr std::string_view prefix = "TROUPE_";

} // namespace

std::string misspelled_variable(const char* const* environment) {
  for (; environment && *environment; ++environment) {
    std::string_view entry{*environment};
    auto name = entry.substr(0, entry.find('='));
    if (!name.starts_with(prefix)
        || std::ranges::find(troupe_variables, name) != troupe_variables.end())
      continue;
    auto by_distance = [name](std::string_view known) {
      return edit_distance(name, known);
    };
    auto nearest = *std::ranges::min_element(troupe_variables, {}, by_distance);
    // Others have nothing in common with it but the prefix.
    if (by_distance(nearest) * 3 <= nearest.size() - prefix.size())
      return "the variable " + std::string{name}
             + " is not read; there is one called " + std::string{nearest};
  }
  return {};
}

std::optional<fs::path> home_folder() {
  if (auto home = std::getenv("HOME"); home && *home)
    return fs::path{home};
  passwd entry{};
  passwd* found = nullptr;
  std::array<char, 4096> buffer;
  auto code =
    ::getpwuid_r(::geteuid(), &entry, buffer.data(), buffer.size(), &found);
  if (code != 0 || !found || !found->pw_dir || !*found->pw_dir)
    return std::nullopt;
  return fs::path{found->pw_dir};
}

expected<fs::path> expanded(const std::string& text, const std::string& from) {
  if (!text.starts_with('~'))
    return fs::path{text};
  if (text != "~" && !text.starts_with("~/"))
    return failure(ec::invalid_config,
                   from + " is '" + text
                     + "', which begins with the name of a user: write that "
                       "user's folder in full, or ./~ for a folder of that "
                       "name");
  auto home = home_folder();
  if (!home)
    return failure(ec::invalid_config,
                   from
                     + " begins with ~, but HOME is not set and the user has "
                       "no entry with a home folder");
  return text.size() < 3 ? *home : *home / text.substr(2);
}

} // namespace troupe::internal
