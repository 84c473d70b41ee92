#pragma once

#include <string>

#include "troupe/callbacks/encoding/non_finite.hpp"
#include "troupe/callbacks/tracking/row_values.hpp"

namespace troupe {

struct csv_options {
  std::string file = "metrics.csv"; ///< Name within the run's folder.
  rank_values ranks = rank_values::first;
  non_finite numbers = non_finite::send; ///< As `nan`, `inf`, `-inf`.
};

} // namespace troupe
