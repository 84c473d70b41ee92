#pragma once

#include <string>
#include <vector>

#include "figure.hpp"
#include "goal.hpp"
#include "workplace.hpp"

namespace troupe::internal::bench {

/// A row of the table and how to get its numbers.
struct measurement {
  std::string name;
  std::string unit;
  goal reach;
  /// Throws if the measurement fails.
  figure (*take)(workplace&);
};

/// All that this build can measure, in the order of the table.
std::vector<measurement> measurements();

} // namespace troupe::internal::bench
