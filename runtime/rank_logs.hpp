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

/// The rank whose output is in the file *name*; nothing for any other name.
inline std::optional<int> rank_of_log(std::string_view name) {
  auto begin = name.find('_') + 1;
  auto rank =
    whole_number<int>(name.substr(begin, name.find('.', begin) - begin));
  return rank && *rank >= 0 && name == log_name(*rank) ? rank : std::nullopt;
}

/// The file with the stacks of *rank*.
inline std::string stacks_name(int rank) {
  return concat("rank_", rank, ".stacks");
}

} // namespace troupe::internal
