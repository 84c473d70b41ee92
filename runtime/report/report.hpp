#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/runtime/checkpoint/checkpoint.hpp"
#include "troupe/runtime/each_field.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/inspect_as.hpp"
#include "troupe/runtime/metrics/packed_metrics.hpp"

namespace troupe {

/// How one call of `context.report` behaves.
struct report_options {
  /// Name of the checkpoint's folder, equal on all ranks. Empty:
  /// `checkpoint_<report index, six digits>`.
  std::string checkpoint_name = {};
  /// Move the files of a given directory instead of copying them. `report`
  /// waits for the commit, even without `barrier`; a refused report leaves
  /// them. Files behind a link to a folder, and those of a checkpoint that a
  /// run has committed, are copied and stay.
  bool move_files = false;
  /// false: do not wait for the other ranks; a rank may run ahead of the
  /// slowest by at most `max_reports_ahead`.
  bool barrier = true;
};

namespace internal {

/// How many reports without barrier a rank may have under way before `report`
/// waits. Enough to hide a commit, small enough that a failure loses little.
inline constexpr int max_reports_ahead = 16;

/// Report *index* of one rank. Indices count over the whole run, restarts
/// included.
struct rank_report {
  int rank = 0;
  std::uint64_t index = 0;
  packed_metrics values;
  std::optional<checkpoint_part> part;
  double step_s = 0; ///< Seconds the loop ran since its previous report.
  /// Why the run is to end after this report; empty: it is not to end.
  std::string stop_request;

  bool operator==(const rank_report&) const = default;
};

TROUPE_INSPECT(rank_report, rank, index, values, part, step_s, stop_request)

/// Report *index* of every rank, and what each added to the checkpoint they
/// made together, if any did.
struct report_batch {
  std::uint64_t index = 0;
  std::vector<packed_metrics> values; ///< One entry per rank, ordered by rank.
  /// One entry per rank, ordered by rank; unset where a rank reported no files.
  /// The names are equal and no file is in two parts.
  std::vector<std::optional<checkpoint_part>> parts;
  /// Seconds each rank's loop ran since its previous report, ordered by rank.
  std::vector<double> step_s;
  double wait_s = 0; ///< Seconds from the first rank's arrival to the last's.
  /// The request of the first rank that has one.
  std::string stop_request = {};

  /// Name of the checkpoint, nullptr if no rank reported one.
  const std::string* checkpoint_name() const noexcept {
    for (auto& part : parts)
      if (part)
        return &part->name;
    return nullptr;
  }

  bool operator==(const report_batch&) const = default;
};

TROUPE_INSPECT(report_batch, index, values, parts, step_s, wait_s, stop_request)

/// Refuses parts that do not form one checkpoint: names that differ between
/// ranks, and a file that two ranks add. The error names ranks and names.
expected<void> check_parts(const report_batch& x);

/// What ranks do together through the control plane, reports aside.
enum class meeting_kind : std::uint8_t { barrier, broadcast };

std::string_view to_string(meeting_kind x) noexcept;

template <class Inspector>
bool inspect(Inspector& f, meeting_kind& x) {
  return inspect_enum(f, x, meeting_kind::broadcast);
}

} // namespace internal

} // namespace troupe
