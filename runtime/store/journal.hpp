#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/report/report.hpp"
#include "troupe/runtime/storage/append_file.hpp"
#include "troupe/runtime/values/journal_entry.hpp"

namespace troupe::internal {

/// The append-only record of a run: one JSON object a line, each with a
/// checksum as its last field. One process writes it; any may read it.
///
/// A line is in the file once `append_…` returns, and so survives the death of
/// the process; it survives a power cut after the next `sync` (N5). All calls
/// may come from any thread.
class journal {
public:
  /// Takes over *file*, opened with `open_flags`, which lies at *path*. What
  /// follows the last whole line (a torn write) is cut off; damaged lines
  /// before it stay. Both give events. A file with lines of which none is a
  /// journal's is `ec::corrupt` and left alone.
  static expected<std::unique_ptr<journal>> open(unique_fd file,
                                                 const fs::path& path);

  /// How a journal's file is to be opened.
  static int open_flags() noexcept;

  /// One line for a report batch; *checkpoint* is the name of its checkpoint,
  /// empty if it has none, which took *checkpoint_s* seconds to commit. An
  /// error leaves the journal as it was.
  expected<void> append_batch(std::uint64_t attempt, const report_batch& batch,
                              std::string_view checkpoint = {},
                              double checkpoint_s = 0);

  /// One line for something that happened; *kind* is snake_case.
  expected<void> append_event(std::string_view kind, std::uint64_t attempt,
                              const metrics& fields = {});

  /// Makes all lines appended before the call durable. May run concurrently
  /// with appends. Fails if the file is no longer the one at its path. After a
  /// failure every later call fails too: the lost data is not known.
  expected<void> sync();

  /// Whether `sync` has failed: lines may be in memory alone.
  bool sync_failed() const noexcept { return syncs_.failed(); }

  /// Whether a line was appended since the last `sync` began.
  bool has_unsynced() const noexcept { return has_unsynced_; }

  /// Index after the highest of any batch in the file.
  std::uint64_t next_report() const noexcept { return next_report_; }

  /// Number after the highest attempt of any line in the file.
  std::uint64_t next_attempt() const noexcept { return next_attempt_; }

  /// What was found on opening: `journal_tail_cut`, `journal_damaged`.
  const std::vector<store_event>& events() const noexcept { return events_; }

private:
  journal() = default;

  expected<void> recover(unique_fd file, const fs::path& path);
  /// Returns where the last whole line of *file* ends.
  expected<std::uint64_t> read(const unique_fd& file, const fs::path& path);
  expected<void> write_line();
  std::int64_t next_time() noexcept;

  std::mutex mutex_; // guards all up to `last_time_us_`
  append_file file_;
  std::string line_; // kept, so that appends allocate nothing
  // Times increase from line to line. If the clock is set back, they stay ahead
  // of it by the same amount.
  std::int64_t last_time_us_ = 0;
  std::int64_t ahead_us_ = 0;
  std::atomic<std::uint64_t> next_report_ = 0;
  std::atomic<std::uint64_t> next_attempt_ = 0;
  std::atomic<bool> has_unsynced_ = false;
  sync_latch syncs_;
  std::vector<store_event> events_;
};

} // namespace troupe::internal
