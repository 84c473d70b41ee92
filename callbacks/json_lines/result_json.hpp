#pragma once

#include <array>
#include <memory>
#include <string_view>

#include "troupe/callbacks/encoding/text.hpp"
#include "troupe/callbacks/tracking/row_values.hpp"
#include "troupe/callbacks/tracking/tracker.hpp"

namespace troupe {

/// The names in saved options.
constexpr std::array<std::string_view, 2> option_names(json_non_finite) {
  return {"text", "null"};
}

struct result_json_options {
  rank_values ranks = rank_values::first;
  troupe::non_finite non_finite = troupe::non_finite::send;
  json_non_finite spelling = json_non_finite::text; ///< Of NaN and infinities.

  /// Lists what is saved for `troupe sync`.
  template <class Visitor>
  void visit(Visitor& option) {
    option.harmless("ranks", ranks);
    option.harmless("non_finite", non_finite);
    option.harmless("spelling", spelling);
  }
};

/// `result.json` and `params.json`, for `run_config::trackers`.
std::shared_ptr<tracker> result_json_tracker(result_json_options options = {},
                                             tracker_options tracking = {});

} // namespace troupe
