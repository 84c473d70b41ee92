#include "troupe/runtime/near_names.hpp"

#include <algorithm>
#include <numeric>

namespace troupe::internal {

std::size_t edit_distance(std::string_view a, std::string_view b) {
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

namespace {

bool is_near(std::string_view name, std::string_view x) {
  std::size_t limit = name.size() < 4 ? 1 : name.size() < 12 ? 2 : 3;
  return !name.empty()
         && (edit_distance(name, x) <= limit || x.find(name) != x.npos);
}

} // namespace

std::string did_you_mean(std::string_view name,
                         std::vector<std::string_view> known) {
  constexpr std::size_t most = 3;
  std::erase_if(known, [&](std::string_view x) { return !is_near(name, x); });
  std::ranges::stable_sort(
    known, {}, [&](std::string_view x) { return edit_distance(name, x); });
  known.resize(std::min(known.size(), most));
  std::string result;
  for (auto& x : known) {
    result += &x == &known.front()  ? "; did you mean "
              : &x == &known.back() ? " or "
                                    : ", ";
    result += x;
  }
  return result.empty() ? result : result + '?';
}

std::string near_names(std::string_view name,
                       const std::vector<std::string_view>& known) {
  constexpr std::size_t most = 8;
  auto result = did_you_mean(name, known);
  if (!result.empty())
    return result;
  for (std::size_t i = 0; i < known.size() && i < most; ++i) {
    result += i == 0 ? "; there is " : ", ";
    result += known[i];
  }
  if (known.size() > most)
    result += ", ...";
  return result;
}

} // namespace troupe::internal
