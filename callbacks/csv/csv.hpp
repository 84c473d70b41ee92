#pragma once

#include <memory>
#include <string>

#include "troupe/callbacks/tracking/row_values.hpp"
#include "troupe/callbacks/tracking/tracker.hpp"

namespace troupe {

struct csv_options {
  std::string file = "metrics.csv"; ///< Name in the run's folder.
  rank_values ranks = rank_values::first;
  /// What becomes of NaN and infinities. They are sent as `nan`, `inf`, `-inf`.
  troupe::non_finite non_finite = troupe::non_finite::send;

  /// Lists what is saved for `troupe sync`.
  template <class Visitor>
  void visit(Visitor& option) {
    option.harmless("file", file);
    option.harmless("ranks", ranks);
    option.harmless("non_finite", non_finite);
  }
};

/// A table of all metrics, for `run_config::trackers`. Every run has one with
/// default options; this one replaces it and by default gets as much time at
/// the end.
std::shared_ptr<tracker> csv_tracker(csv_options options = {},
                                     tracker_options tracking = own_files);

} // namespace troupe
