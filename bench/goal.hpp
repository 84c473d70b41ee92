#pragma once

#include <optional>
#include <string>

#include "figure.hpp"

namespace troupe::internal::bench {

/// The goal of a figure. All bounds that are set must hold.
struct goal {
  std::optional<double> max_value;
  std::optional<double> min_value;
  std::optional<double> max_ratio;
  std::optional<double> min_ratio;

  bool reached_by(const figure& x) const;

  /// Such as `<= 1.5x, <= 0.8 s`; *unit* is that of the values.
  std::string text(const std::string& unit) const;
};

} // namespace troupe::internal::bench
