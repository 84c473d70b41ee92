#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/checkpoint/checkpoint.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/store/journal_reader.hpp"
#include "troupe/runtime/store/run_store.hpp"
#include "troupe/runtime/values/journal_entry.hpp"

namespace troupe::internal {

/// A stored report that callbacks may not have received.
struct pending_report {
  journaled_batch batch;
  std::optional<checkpoint> data; ///< Unset, too, if it is gone.
};

/// How many of its reports a run's callbacks have answered, in `callbacks.told`
/// in the run's folder: after a crash the next driver replays the reports whose
/// callbacks had not finished (N4).
///
/// The count survives a crash of the process. A power cut may set it back: then
/// some reports are delivered twice, and none is left out. The count stops at
/// the first report for which a callback was skipped.
///
/// Until then their checkpoints stay, also those that retention evicts: see
/// `run_store::hold_checkpoints` and `hold_checkpoints_again`.
class callback_cursor {
public:
  /// Opens the cursor of the run of *store*, before its first attempt begins to
  /// report. The store has to live as long as the result.
  static expected<callback_cursor> open(run_store& store);

  /// The run has no callbacks: its reports count as delivered.
  static expected<void> mark_all_delivered(run_store& store);

  /// The next pending report of those stored when this was opened, each
  /// once; nothing after the last. They are read one by one, without waiting
  /// for the store: after a callback was skipped, they may be most of a long
  /// run.
  expected<std::optional<pending_report>> next_pending();

  /// Callbacks have answered all reports up to *index*, except those *skipped*
  /// from this one on. One small write in place, which does not wait for the
  /// disk. Refused once another driver has the run.
  expected<void> mark_delivered(std::uint64_t index,
                                const std::vector<std::string>& skipped = {});

  /// One sentence for each callback that was skipped.
  std::vector<std::string> skipped() const;

private:
  callback_cursor(run_store& store, fs::path path, unique_fd file)
    : store_(&store), path_(std::move(path)), file_(std::move(file)) {}

  expected<std::uint64_t> count() const;
  expected<void> set_count(std::uint64_t count);
  /// The same, durably: after a power cut, a count that was too high would
  /// leave reports out.
  expected<void> lower(std::uint64_t count);
  static expected<callback_cursor> open_file_of(run_store& store);

  run_store* store_;
  fs::path path_;
  unique_fd file_;
  std::optional<batch_reader> pending_;      ///< Unset after the last.
  std::optional<journaled_batch> first_;     ///< Of those: read by `open`.
  std::map<std::uint64_t, checkpoint> kept_; ///< Of pending reports, by index.
  std::uint64_t next_ = 0;   ///< Of those, the index of none before.
  std::uint64_t stored_ = 0; ///< Reports of the run when this was opened.
  std::map<std::string, std::uint64_t> skipped_; ///< With the first report.
};

/// `open` if the run has callbacks; without, `mark_all_delivered`, and unset.
expected<std::optional<callback_cursor>>
open_callback_cursor(run_store& store, bool has_callbacks);

} // namespace troupe::internal
