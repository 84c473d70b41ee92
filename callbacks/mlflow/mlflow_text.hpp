#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/runtime/metrics/metric_value.hpp"

namespace troupe {

/// Longest values that servers of all ages keep whole, in bytes.
inline constexpr std::size_t max_mlflow_param = 6000;
inline constexpr std::size_t max_mlflow_tag = 5000;

/// A param's or tag's value: numbers exactly, `nan`, `inf`, `-inf`, `true`,
/// `false`, texts as UTF-8.
std::string mlflow_text(const metric_value& x);

/// *text* if it has at most *limit* bytes, else its beginning, cut between two
/// characters, and *marker*, *limit* bytes together at most.
std::string cut_text(const std::string& text, std::size_t limit,
                     std::string_view marker = "... [cut]");

/// The characters of *text*, which is UTF-8.
std::vector<std::string_view> characters_of(std::string_view text);

} // namespace troupe
