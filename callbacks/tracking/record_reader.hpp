#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "troupe/callbacks/tracking/sink.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/store/journal_reader.hpp"

namespace troupe::internal {

/// What a train loop last said about its run.
struct tracking_hints {
  std::string project;
  std::string experiment;
  std::string display_name;
  /// How the loop of this attempt ended, if it said so.
  std::optional<run_status_kind> status;
};

/// Reads the journal of a run as records for trackers. Skips entries that do
/// not concern trackers, kinds of a later version, damaged lines and files
/// outside the run's folder.
class record_reader {
public:
  /// Starts at byte *offset* of the journal of the run in *run_path*; *hints*
  /// are those of the entries before it. Reads the values of the first *ranks*
  /// ranks of each report; the others are empty.
  static expected<record_reader> open(const fs::path& run_path,
                                      std::uint64_t offset = 0,
                                      tracking_hints hints = {},
                                      std::size_t ranks = all_ranks);

  /// The next record; empty at the end, where more may come later. After an
  /// error the next call tries the same line again.
  expected<std::optional<tracker_record>> next();

  /// Offset of the journal's next line, in bytes.
  std::uint64_t offset() const noexcept {
    return entry_ ? begin_ : journal_.offset();
  }

  /// What the entries so far say about the run.
  const tracking_hints& hints() const noexcept { return hints_; }

private:
  record_reader(journal_reader journal, fs::path run_path, tracking_hints hints)
    : journal_(std::move(journal)), run_path_(std::move(run_path)),
      hints_(std::move(hints)) {}

  using content = std::optional<tracker_record::content_type>;

  /// Moves from *entry* if it succeeds.
  expected<std::optional<tracker_record>> convert(journal_entry& entry);
  expected<content> content_of(const journal_event& event);
  template <class T> // of `loop_record`
  expected<content> content_of(T x);
  /// Makes the path of *file* absolute; false if it leads out of the run's
  /// folder.
  expected<bool> find_in_run(fs::path& file) const;

  journal_reader journal_;
  std::optional<journal_entry> entry_; ///< Read but not converted.
  std::uint64_t begin_ = 0;            ///< Where its line begins, or before.
  fs::path run_path_;
  tracking_hints hints_;
};

/// How far a tracker has taken the records of a run's journal: the content of
/// `sinks/<name>.offset`.
struct sink_position {
  std::uint64_t offset = 0; ///< Of the journal after the last record, bytes.
  std::int64_t time_us = 0; ///< Of that record, microseconds since 1970.
  /// The attempt of that record; unset in files of earlier versions.
  std::optional<std::uint64_t> attempt;
  std::string line_end; ///< Last bytes of the journal before *offset*.
  std::string state;    ///< `sink::state()`.
  tracking_hints hints; ///< From the records so far.
};

/// Replaces the file *path* durably.
expected<void> save_position(const sink_position& x, const fs::path& path);

/// Empty if there is no such file yet.
expected<std::optional<sink_position>> load_position(const fs::path& path);

/// The last bytes before *offset* of the file *journal*, enough to identify a
/// line; empty at the start of the file.
expected<std::string> line_end_at(const fs::path& journal,
                                  std::uint64_t offset);

/// Where to resume in the journal of the run in *run_path* after *x*: at its
/// offset or, if the journal lost its tail to a power cut and grew again, at
/// the first line written later: by a later attempt, or by the same one at a
/// later time. The clock alone does not decide, as it may have been set back.
expected<std::uint64_t> resume_offset(const sink_position& x,
                                      const fs::path& run_path);

} // namespace troupe::internal
