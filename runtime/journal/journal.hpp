#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/report/report_batch.hpp"
#include "troupe/runtime/process/unique_fd.hpp"
#include "troupe/runtime/storage/store_event.hpp"

namespace troupe {

/// The append-only record of a run: one JSON object a line, each with a
/// checksum as its last field. One process writes it; any may read it.
///
/// A line is in the file once `append_…` returns, and so survives the death of
/// the process; it survives a power cut after the next `sync` (N5). All calls
/// may come from any thread.
class journal {
public:
  /// Opens or makes the file *path*. What follows the last whole line (a torn
  /// write) is cut off; lines before it that are damaged stay, see `events`.
  static expected<std::unique_ptr<journal>> open(const fs::path& path);

  /// One line for a report batch; *checkpoint* is the name of its checkpoint,
  /// empty if it has none.
  expected<void> append_batch(std::uint64_t attempt, const report_batch& batch,
                              std::string_view checkpoint = {});

  /// One line for something that happened; *kind* is snake_case.
  expected<void> append_event(std::string_view kind, std::uint64_t attempt,
                              const metrics& fields = {});

  /// Makes all lines appended before the call durable. Runs beside appends.
  /// After a failure every later call fails too: what the disk lost then is not
  /// known.
  expected<void> sync();

  /// Index after the highest of any batch in the file.
  std::uint64_t next_report() const noexcept { return next_report_; }

  /// Number after the highest attempt of any line in the file.
  std::uint64_t next_attempt() const noexcept { return next_attempt_; }

  /// Bytes of whole lines.
  std::uint64_t size() const;

  /// What was found on opening: a cut tail, damaged lines.
  const std::vector<store_event>& events() const noexcept { return events_; }

private:
  journal(unique_fd file, fs::path path);

  expected<void> recover();
  expected<void> append_line(std::int64_t* time);
  std::int64_t next_time() noexcept;

  mutable std::mutex mutex_;
  unique_fd file_;
  fs::path path_;
  std::string line_;       // reused, so that appends allocate nothing
  std::uint64_t size_ = 0; // end of the last whole line
  std::int64_t last_time_us_ =
    0; // times never go back, whatever the clock does
  std::atomic<std::uint64_t> next_report_ = 0;
  std::atomic<std::uint64_t> next_attempt_ = 0;
  std::atomic<bool> sync_failed_ = false;
  std::vector<store_event> events_;
};

} // namespace troupe
