#pragma once

namespace troupe {

/// How ranks with different numbers of batches train together.
struct join_options {
  /// Gradients are divided by the size of the group to the end, so that each
  /// sample weighs the same. Off: by the number of ranks that still have data,
  /// so that each step weighs the same.
  bool divide_by_initial_world_size = true;
};

} // namespace troupe
