#pragma once

// For sources only, so that headers do not include the JSON library.

#include <stdexcept>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "troupe/callbacks/tracking/row_values.hpp"

namespace troupe {

// The JSON form of options that several trackers have. Any other text throws
// `std::invalid_argument`.

inline const char* text_of(rank_values x) {
  return x == rank_values::first  ? "first"
         : x == rank_values::mean ? "mean"
                                  : "each";
}

inline const char* text_of(non_finite x) {
  return x == non_finite::send ? "send" : "skip";
}

inline void read_option(std::string_view text, rank_values& x) {
  for (auto value : {rank_values::first, rank_values::mean, rank_values::each})
    if (text == text_of(value)) {
      x = value;
      return;
    }
  throw std::invalid_argument{"ranks: '" + std::string{text}
                              + "' is none of first, mean, each"};
}

inline void read_option(std::string_view text, non_finite& x) {
  for (auto value : {non_finite::send, non_finite::skip})
    if (text == text_of(value)) {
      x = value;
      return;
    }
  throw std::invalid_argument{"non_finite: '" + std::string{text}
                              + "' is none of send, skip"};
}

/// Reads the member *name* of *options* into *x*, which keeps its value if the
/// member is missing.
template <class T>
void read_option(const nlohmann::json& options, const char* name, T& x) {
  auto i = options.find(name);
  if (i == options.end())
    return;
  if constexpr (std::is_enum_v<T>)
    read_option(i->get<std::string>(), x);
  else
    x = i->get<T>();
}

} // namespace troupe
