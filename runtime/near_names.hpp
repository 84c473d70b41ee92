#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::internal {

/// How many characters have to be added, removed or replaced in *a* for *b*.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The one of *known* that *name* is a misspelling of; empty if none is near.
std::string_view nearest_name(std::string_view name,
                              const std::vector<std::string_view>& known);

/// What to add to a sentence about *name*, which is not in *known*: "; there is
/// a, b" with the names that are nearly the same, or all of them if there are
/// none, at most eight. Empty if *known* is.
std::string near_names(std::string_view name,
                       std::vector<std::string_view> known);

} // namespace troupe::internal
