#pragma once

namespace troupe {

/// How often a run may fail before it ends.
struct failure_config {
  /// Restarts of the whole group after a rank failed. 0: the first failure ends
  /// the run. -1: without limit.
  int max_failures = 0;
  /// Attempts at a group that fails to start, before the run ends. -1: without
  /// limit, with back-off.
  int controller_failure_limit = 3;
};

} // namespace troupe
