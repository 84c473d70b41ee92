#include "troupe/runtime/environment.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace troupe::internal {

namespace {

constexpr std::string_view prefix = "TROUPE_";

/// How many characters have to be added, removed or replaced in *a* for *b*.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    auto diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      auto replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

} // namespace

std::string misspelled_variable(const char* const* environment) {
  for (; environment && *environment; ++environment) {
    std::string_view entry{*environment};
    auto name = entry.substr(0, entry.find('='));
    if (!name.starts_with(prefix)
        || std::ranges::find(troupe_variables, name) != troupe_variables.end())
      continue;
    auto by_distance = [name](std::string_view known) {
      return distance(name, known);
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
