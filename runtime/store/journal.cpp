#include "troupe/runtime/store/journal.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/storage/checksum.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/store/journal_line.hpp"
#include "troupe/runtime/store/journal_reader.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

void raise(std::atomic<std::uint64_t>& x, std::uint64_t value) {
  if (x < value) // one writer: callers hold the lock
    x = value;
}

} // namespace

journal::journal(unique_fd file, fs::path path)
  : file_(std::move(file)), path_(std::move(path)) {}

expected<std::unique_ptr<journal>> journal::open(unique_fd file,
                                                 const fs::path& path) {
  std::unique_ptr<journal> result{new journal{std::move(file), path}};
  return result->recover().map([&] { return std::move(result); });
}

int journal::open_flags() noexcept {
  return O_RDWR | O_CREAT | O_APPEND;
}

expected<void> journal::recover() {
  TROUPE_TRY(auto file, duplicate(file_.get()));
  line_reader lines{std::move(file), path_, 0};
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
      if (auto first = parse_line(*line, path_.string());
          !first && first.error().code == ec::unsupported)
        return tl::unexpected{first.error()};
    damaged += std::exchange(bad_run, 0); // a good line follows: not a tail
    size_ = lines.offset();
    auto head = parse_line_head(*line);
    if (!head)
      continue;
    last_time_us_ = std::max(last_time_us_, head->time_us);
    raise(next_attempt_, head->attempt + 1);
    if (head->index)
      raise(next_report_, *head->index + 1);
  }
  if (good == 0 && count > 1)
    return failure(ec::corrupt, concat(path_.string(), ": none of its ", count,
                                       " lines is a line of a journal"));
  if (damaged > 0)
    events_.push_back(
      {"journal_damaged", {{"lines", damaged}, {"first_line", first_bad}}});
  struct stat info {};
  if (::fstat(file_.get(), &info) != 0)
    return tl::unexpected{storage_error("read", path_, errno)};
  auto surplus = info.st_size - static_cast<off_t>(size_);
  if (surplus > 0) {
    TROUPE_TRY_VOID(cut());
    events_.push_back(
      {"journal_tail_cut", {{"bytes", static_cast<std::int64_t>(surplus)}}});
  }
  if (size_ > 0)
    return {};
  append_header_line(line_);
  return write_line().and_then(
    [&] { return sync_folder(path_.parent_path()); });
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
  if (sync_failed_)
    return failure(ec::storage,
                   path_.string() + " is not durable: an earlier sync failed");
  if (is_lost()) {
    sync_failed_ = true;
    return failure(ec::storage, path_.string()
                                  + " is gone: it was removed or renamed "
                                    "while the run was writing it");
  }
  has_unsynced_ = false;
  auto code = failpoint("journal.sync");
  while (code == 0 && ::fdatasync(file_.get()) != 0)
    code = errno == EINTR ? 0 : errno;
  if (code == 0)
    return {};
  sync_failed_ = true;
  return tl::unexpected{storage_error("make durable", path_, code)};
}

bool journal::is_lost() const {
  struct stat ours {
  }, found{};
  if (::fstat(file_.get(), &ours) != 0)
    return false; // The next write reports why.
  if (::stat(path_.c_str(), &found) != 0)
    return errno == ENOENT || errno == ENOTDIR;
  return found.st_ino != ours.st_ino || found.st_dev != ours.st_dev;
}

expected<void> journal::write_line() {
  auto written = torn_ > 0 ? cut() : expected<void>{};
  if (written)
    written = write_all(line_);
  line_.clear();
  return written;
}

// One system call, unless the file system writes only a part.
expected<void> journal::write_all(std::string_view line) {
  std::size_t done = 0;
  while (done < line.size()) {
    auto code = failpoint("journal.append");
    auto count =
      code != 0 ? -1
                : ::write(file_.get(), line.data() + done, line.size() - done);
    if (count >= 0) {
      done += static_cast<std::size_t>(count);
      continue;
    }
    code = code != 0 ? code : errno;
    if (code == EINTR)
      continue;
    torn_ = done;
    if (torn_ > 0)
      (void) cut(); // or else before the next line
    return tl::unexpected{storage_error("append to", path_, code)};
  }
  size_ += line.size();
  has_unsynced_ = true;
  failpoint("journal.appended");
  return {};
}

expected<void> journal::cut() {
  struct stat info {};
  if (::fstat(file_.get(), &info) != 0)
    return tl::unexpected{storage_error("read", path_, errno)};
  if (torn_ > 0 && static_cast<std::uint64_t>(info.st_size) != size_ + torn_)
    return failure(ec::storage, path_.string()
                                  + " grew by more than this driver wrote to "
                                    "it, so that its torn end stays");
  if (::ftruncate(file_.get(), static_cast<off_t>(size_)) != 0)
    return tl::unexpected{storage_error("cut the torn end of", path_, errno)};
  torn_ = 0;
  failpoint("journal.cut");
  return {};
}

std::int64_t journal::next_time() noexcept {
  using namespace std::chrono;
  auto now = std::int64_t{
    duration_cast<microseconds>(system_clock::now().time_since_epoch())
      .count()};
  if (now > last_time_us_) {
    ahead_us_ = 0;
  } else {
    ahead_us_ = std::max(ahead_us_, last_time_us_ + 1 - now);
    now += ahead_us_;
  }
  return last_time_us_ = now;
}

} // namespace troupe::internal
