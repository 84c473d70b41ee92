#pragma once

#include <memory>
#include <string>
#include <vector>

#include "troupe/callbacks/tracking/row_values.hpp"
#include "troupe/callbacks/tracking/tracker.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe {

struct tensorboard_options {
  /// Folder of the run's event files, which no other run may use; a relative
  /// path is relative to the run's folder, a leading `~` is the user's home.
  fs::path log_dir = "tensorboard";
  rank_values ranks = rank_values::first;
  troupe::non_finite non_finite = troupe::non_finite::send;
  /// Metrics that the page "HParams" shows as columns. Empty: the page finds
  /// them itself over all runs, which is usually best.
  std::vector<std::string> hparams_metrics;

  /// Lists what is saved for `troupe sync`.
  template <class Visitor>
  void visit(Visitor& option) {
    option("log_dir", log_dir);
    option.harmless("ranks", ranks);
    option.harmless("non_finite", non_finite);
    option.harmless("hparams_metrics", hparams_metrics);
  }
};

/// TensorBoard's event files, for `run_config::trackers`.
std::shared_ptr<tracker> tensorboard_tracker(tensorboard_options options = {},
                                             tracker_options tracking = {});

} // namespace troupe
