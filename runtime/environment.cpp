#include "troupe/runtime/environment.hpp"

#include <algorithm>

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

} // namespace troupe::internal
