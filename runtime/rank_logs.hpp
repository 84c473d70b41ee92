#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "troupe/runtime/text.hpp"
#include "troupe/runtime/whole_number.hpp"

/// Names in the folder `run_layout::logs`.
namespace troupe::internal {

/// The file with the output of *rank*.
inline std::string log_name(int rank) {
  return concat("rank_", rank, ".log");
}

/// The file with the stacks of *rank*.
inline std::string stacks_name(int rank) {
  return concat("rank_", rank, ".stacks");
}

/// What the name of the file begins with that an agent makes and removes, to
/// learn whether it can write there.
inline constexpr const char* agent_trial = "agent";

/// The rank for which *name_of* makes *name*; nothing if there is none.
inline std::optional<int> rank_in(std::string_view name,
                                  std::string (*name_of)(int)) {
  auto begin = name.find('_') + 1;
  auto rank =
    whole_number<int>(name.substr(begin, name.find('.', begin) - begin));
  return rank && *rank >= 0 && name == name_of(*rank) ? rank : std::nullopt;
}

/// The rank whose output is in the file *name*; nothing for any other name.
inline std::optional<int> rank_of_log(std::string_view name) {
  return rank_in(name, log_name);
}

/// The rank whose stacks are in the file *name*; nothing for any other name.
inline std::optional<int> rank_of_stacks(std::string_view name) {
  return rank_in(name, stacks_name);
}

} // namespace troupe::internal
