#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/store/journal_line.hpp"
#include "troupe/runtime/values/journal_entry.hpp"

namespace troupe::internal {

/// Reads the lines of a file that may still grow.
class line_reader {
public:
  /// Starts at byte *offset*, the begin of a line.
  static expected<line_reader> open(const fs::path& path, std::uint64_t offset);

  /// Reads *file*, which is open; *path* is for the error's sentence.
  line_reader(unique_fd file, fs::path path, std::uint64_t offset)
    : file_(std::move(file)), path_(std::move(path)), offset_(offset) {}

  /// The next line with its line end, valid until the next call; nothing if
  /// there is no whole line (yet).
  expected<std::optional<std::string_view>> next();

  /// Opens the file at its path again: a network share shows what other hosts
  /// have written only to those who do.
  expected<void> reopen();

  /// Where the next line begins, in bytes.
  std::uint64_t offset() const noexcept { return offset_; }

  const fs::path& path() const noexcept { return path_; }

private:
  expected<bool> fill();

  unique_fd file_;
  fs::path path_;
  std::string buffer_;    // bytes of the file from `offset_ - begin_` on
  std::size_t begin_ = 0; // of the next line within the buffer
  std::uint64_t offset_ = 0;
};

/// Reads a journal entry by entry, also one that is still being written.
class journal_reader {
public:
  /// Starts at byte *offset*, the begin of a line: 0, or what `offset()` of an
  /// earlier reader was. Reads the values of the first *ranks* of each batch;
  /// the others are empty.
  static expected<journal_reader> open(const fs::path& path,
                                       std::uint64_t offset = 0,
                                       std::size_t ranks = all_ranks);

  /// The next entry; nothing at the end, where a torn last line counts as not
  /// written yet: more may come later. A damaged line is `ec::corrupt` with its
  /// number; the next call continues after it.
  expected<std::optional<journal_entry>> next();

  /// Reads up to the end: calls *add* with each entry, and *damaged* with the
  /// error of each damaged line.
  expected<void> read_rest(const std::function<void(journal_entry)>& add,
                           const std::function<void(error)>& damaged);

  /// As `line_reader::reopen`.
  expected<void> reopen() { return lines_.reopen(); }

  /// Where the next line begins, in bytes.
  std::uint64_t offset() const noexcept { return lines_.offset(); }

private:
  journal_reader(line_reader lines, std::size_t ranks)
    : lines_(std::move(lines)), ranks_(ranks) {}

  line_reader lines_;
  std::size_t ranks_;
  std::uint64_t line_ = 0; // number of the last line read, from where it began
};

/// The last batch of the journal *path* that is not damaged, without parsing
/// those before it; nothing if there is none.
expected<std::optional<journaled_batch>> read_last_batch(const fs::path& path);

/// The latest attempt, as the journal has it.
struct last_attempt {
  /// How the run ended in it: the event `run_ended`, or `driver_lost` if its
  /// driver died. Nothing: it did not end.
  std::optional<journal_event> end;

  /// The event `ranks_failed`. Nothing: they did not fail, or they were to
  /// leave because the run was preempted.
  std::optional<journal_event> failure;

  /// Why it was decided, in any attempt, that the run has trained enough.
  std::string stop_reason;
};

/// The latest attempt of the journal *path*.
expected<last_attempt> read_last_attempt(const fs::path& path);

/// Seconds that drivers had the run of the journal *path*, each from the begin
/// of its first attempt to the last line before its end.
expected<double> read_driven_seconds(const fs::path& path);

/// Reads the batches of a journal one by one, in order; damaged lines are
/// skipped.
class batch_reader {
public:
  /// Begins at report index *first*.
  static expected<batch_reader> open(const fs::path& path, std::uint64_t first);

  /// The next batch; nothing at the end.
  expected<std::optional<journaled_batch>> next();

private:
  batch_reader(line_reader lines, std::uint64_t first)
    : lines_(std::move(lines)), first_(first) {}

  line_reader lines_;
  std::uint64_t first_;
};

} // namespace troupe::internal
