#pragma once

#include <string>
#include <utility>
#include <vector>

#include "measurement.hpp"

namespace troupe::internal::bench {

/// A measurement and its result.
using row = std::pair<measurement, figure>;

void print_head();

/// Prints the line of *x* and whether it reached its goal.
void print_row(const row& x);

/// *rows* as a JSON list of objects with the keys name, value, unit, reference,
/// ratio.
std::string to_json(const std::vector<row>& rows);

} // namespace troupe::internal::bench
