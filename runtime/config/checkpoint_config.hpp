#pragma once

#include <optional>
#include <string>

#include "troupe/runtime/error.hpp"

namespace troupe {

enum class score_order { max, min };

/// Which checkpoints a run keeps.
struct checkpoint_config {
  /// How many of the best checkpoints to keep; the latest is kept in any case.
  /// Unset keeps all.
  std::optional<int> num_to_keep;
  /// Metric of rank 0 to rank checkpoints by, `a/b` for nested ones. Empty: the
  /// newest are the best. Checkpoints without such a number are below all
  /// others, the newest last to go; the console and the journal say so once.
  std::string checkpoint_score_attribute;
  score_order checkpoint_score_order = score_order::max;
};

/// Refuses `num_to_keep` < 1.
expected<void> validate(const checkpoint_config& x);

} // namespace troupe
