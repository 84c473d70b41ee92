#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "troupe/callbacks/tracking/tracked_run.hpp"
#include "troupe/callbacks/tracking/tracker_record.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/journal/journal_reader.hpp"

namespace troupe {

/// What a train loop said about its run, the last time it did.
struct loop_words {
  std::string project;
  std::string experiment;
  std::string display_name;
  /// How the loop of this attempt ended, by its own account.
  std::optional<run_status_kind> status;
};

/// Reads the journal of a run as records for trackers. Entries that are none of
/// a tracker's business, and kinds of a later version, are passed over; so are
/// damaged lines, and files that are not in the run's folder.
class record_reader {
public:
  /// Starts at byte *offset* of the journal of the run in *run_path*; *words*
  /// are those of the entries before it. Of each report the values of the first
  /// *ranks* are read; the others are empty.
  static expected<record_reader> open(const fs::path& run_path,
                                      std::uint64_t offset = 0,
                                      loop_words words = {},
                                      std::size_t ranks = all_ranks);

  /// The next record; nothing at the end, where more may come later.
  expected<std::optional<tracker_record>> next();

  /// Where the next line of the journal begins, in bytes.
  std::uint64_t offset() const noexcept { return journal_.offset(); }

  /// What the entries read so far say about the run.
  const loop_words& words() const noexcept { return words_; }

private:
  record_reader(journal_reader journal, fs::path run_path, loop_words words)
    : journal_(std::move(journal)), run_path_(std::move(run_path)),
      words_(std::move(words)) {}

  std::optional<tracker_record> convert(journal_entry entry);
  std::optional<tracker_record::content_type>
  content_of(const journal_event& event);

  journal_reader journal_;
  fs::path run_path_;
  loop_words words_;
};

} // namespace troupe
