#pragma once

#include <optional>
#include <string>

#include "troupe/runtime/config/checkpoint_config.hpp"

namespace troupe {

/// When `early_stopping` ends a fit. Names and defaults are Lightning's.
struct early_stopping_options {
  std::string monitor; ///< Name of a logged value.
  score_order mode = score_order::min;
  /// Checks in a row without an improvement that end the fit.
  int patience = 3;
  /// A change of at most this much is no improvement.
  double min_delta = 0;
  /// NaN and infinities end the fit at once.
  bool check_finite = true;
  /// Check at the end of train epochs instead of validations. Unset: yes if
  /// every epoch is validated.
  std::optional<bool> check_on_train_epoch_end = {};
};

} // namespace troupe
