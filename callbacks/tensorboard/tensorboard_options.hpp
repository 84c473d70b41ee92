#pragma once

#include <string>
#include <vector>

#include "troupe/callbacks/encoding/non_finite.hpp"
#include "troupe/callbacks/tracking/row_values.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe {

struct tensorboard_options {
  /// Folder of the run's event files, which no other run may use; a relative
  /// one lies in the run's folder.
  fs::path log_dir = "tensorboard";
  rank_values ranks = rank_values::first;
  non_finite numbers = non_finite::send;
  /// Metrics that the page "HParams" shows as columns. None: it finds them
  /// itself, over all runs that it is given, which is what most people want.
  std::vector<std::string> hparams_metrics;
};

} // namespace troupe
