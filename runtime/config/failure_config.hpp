#pragma once

namespace troupe {

/// How often a run may fail before it ends.
struct failure_config {
  /// Restarts of the whole group after a rank failed. 0: the first failure ends
  /// the run. -1: without limit.
  int max_failures = 0;
  /// Restarts of a group that failed to start. 0: the first failure ends the
  /// run. -1: without limit, with back-off.
  int controller_failure_limit = 3;
};

} // namespace troupe
