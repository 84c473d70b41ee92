#pragma once

#include "troupe/callbacks/encoding/json_text.hpp"
#include "troupe/callbacks/encoding/non_finite.hpp"
#include "troupe/callbacks/tracking/row_values.hpp"

namespace troupe {

struct result_json_options {
  rank_values ranks = rank_values::first;
  non_finite numbers = non_finite::send;
  /// How those that are sent are spelled.
  json_non_finite spelling = json_non_finite::text;
};

} // namespace troupe
