#include "troupe/runtime/store/journal.hpp"

#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/storage/checksum.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/held_folder.hpp"
#include "troupe/runtime/store/journal_line.hpp"
#include "troupe/runtime/store/journal_reader.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/unix_time.hpp"

namespace troupe::internal {

namespace {

void raise(std::atomic<std::uint64_t>& x, std::uint64_t value) {
  if (x < value) // one writer: callers hold the lock
    x = value;
}

} // namespace

expected<std::unique_ptr<journal>> journal::open(unique_fd file,
                                                 const fs::path& path) {
  std::unique_ptr<journal> result{new journal};
  return result->recover(std::move(file), path).map([&] {
    return std::move(result);
  });
}

int journal::open_flags() noexcept {
  return append_file::open_flags() | O_CREAT;
}

expected<void> journal::recover(unique_fd file, const fs::path& path) {
  TROUPE_TRY(auto whole, read(file, path));
  TROUPE_TRY(file_, append_file::take(std::move(file), path));
  if (auto surplus = file_.size() - std::min(whole, file_.size())) {
    TROUPE_TRY_VOID(file_.cut(whole));
    failpoint("journal.cut");
    events_.push_back(
      {"journal_tail_cut", {{"bytes", static_cast<std::int64_t>(surplus)}}});
  }
  if (whole > 0)
    return {};
  append_header_line(line_);
  return write_line().and_then([&] { return sync_folder(path.parent_path()); });
}

expected<std::uint64_t> journal::read(const unique_fd& file,
                                      const fs::path& path) {
  TROUPE_TRY(auto copy, duplicate(file.get()));
  line_reader lines{std::move(copy), path, 0};
  std::uint64_t whole = 0;
  std::int64_t good = 0, count = 0, damaged = 0, bad_run = 0, first_bad = 0;
  for (;;) {
    TROUPE_TRY(auto line, lines.next());
    if (!line)
      break;
    ++count;
    if (!has_valid_sum(*line)) {
      first_bad = damaged + bad_run++ == 0 ? count : first_bad;
      continue;
    }
    if (good++ == 0)
      if (auto first = parse_line(*line, path.string());
          !first && first.error().code == ec::unsupported)
        return tl::unexpected{first.error()};
    damaged += std::exchange(bad_run, 0); // a good line follows: not a tail
    whole = lines.offset();
    auto head = parse_line_head(*line);
    if (!head)
      continue;
    last_time_us_ = std::max(last_time_us_, head->time_us);
    raise(next_attempt_, head->attempt + 1);
    if (head->index)
      raise(next_report_, *head->index + 1);
  }
  if (good == 0 && count > 1)
    return failure(ec::corrupt, concat(path.string(), ": none of its ", count,
                                       " lines is a line of a journal"));
  if (damaged > 0)
    events_.push_back(
      {"journal_damaged", {{"lines", damaged}, {"first_line", first_bad}}});
  return whole;
}

expected<void> journal::append_batch(std::uint64_t attempt,
                                     const report_batch& batch,
                                     std::string_view checkpoint,
                                     double checkpoint_s) {
  std::lock_guard guard{mutex_};
  append_batch_line(line_, attempt, next_time(), batch, checkpoint,
                    checkpoint_s);
  return write_line().map([&] {
    raise(next_report_, batch.index + 1);
    raise(next_attempt_, attempt + 1);
  });
}

expected<void> journal::append_event(std::string_view kind,
                                     std::uint64_t attempt,
                                     const metrics& fields) {
  std::lock_guard guard{mutex_};
  append_event_line(line_, attempt, next_time(), kind, fields);
  return write_line();
}

expected<void> journal::sync() {
  auto& path = file_.path();
  return syncs_.pass(path, [&]() -> expected<void> {
    // What cannot be determined is reported by the sync.
    if (auto in_place = file_.is_in_place(); in_place && !*in_place)
      return tl::unexpected{gone_error("the journal", path)};
    has_unsynced_ = false;
    if (auto code = failpoint("journal.sync"))
      return tl::unexpected{storage_error("make durable", path, code)};
    return file_.sync();
  });
}

expected<void> journal::write_line() {
  auto code = failpoint("journal.append");
  auto written =
    code == 0 ? file_.append(line_)
              : tl::unexpected{storage_error("append to", file_.path(), code)};
  line_.clear();
  if (written) {
    has_unsynced_ = true;
    failpoint("journal.appended");
  }
  return written;
}

std::int64_t journal::next_time() noexcept {
  auto now = unix_us(std::chrono::system_clock::now());
  if (now > last_time_us_) {
    ahead_us_ = 0;
  } else {
    ahead_us_ = std::max(ahead_us_, last_time_us_ + 1 - now);
    now += ahead_us_;
  }
  return last_time_us_ = now;
}

} // namespace troupe::internal
