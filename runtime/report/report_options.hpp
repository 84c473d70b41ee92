#pragma once

#include <string>

namespace troupe {

/// How one call of `context.report` behaves.
struct report_options {
  /// Name of the checkpoint's folder, equal on all ranks. Empty:
  /// `checkpoint_<report index, six digits>`.
  std::string checkpoint_name = {};
  /// Move the files of a given directory instead of copying them. `report`
  /// waits for the commit, even without `barrier`; one that is refused leaves
  /// them. What lies behind a link to a folder is copied and stays.
  bool move_files = false;
  /// false: do not wait for the other ranks; a rank may run ahead of the
  /// slowest by at most `max_reports_ahead`.
  bool barrier = true;
};

/// How many reports without barrier a rank may have under way before `report`
/// waits. Enough to hide a commit, small enough that a failure loses little.
inline constexpr int max_reports_ahead = 16;

} // namespace troupe
