#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::internal {

/// How many characters have to be added, removed or replaced in *a* for *b*.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// What to add to a sentence about *name*, which is not in *known*: "; did you
/// mean a, b or c?" with the names that are nearly the same, the nearest first,
/// at most three. Empty if there are none.
std::string did_you_mean(std::string_view name,
                         std::vector<std::string_view> known);

/// The same; if there are none, "; there is a, b" with all of *known*, at most
/// eight. Empty if *known* is.
std::string near_names(std::string_view name,
                       const std::vector<std::string_view>& known);

} // namespace troupe::internal
