#include "troupe/runtime/store/journal_reader.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "troupe/runtime/storage/checksum.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

// Small, because many short-lived threads read journals: each arena of the
// allocator keeps its largest size.
constexpr std::size_t read_size = 64 * 1024;

/// The kind of the event in *line* of the journal *path*; empty: it has none.
std::string kind_of(std::string_view line, const fs::path& path) {
  auto entry = parse_line(line, path.string());
  auto event = entry && *entry ? std::get_if<journal_event>(&**entry) : nullptr;
  return event ? std::move(event->kind) : std::string{};
}

} // namespace

expected<line_reader> line_reader::open(const fs::path& path,
                                        std::uint64_t offset) {
  return open_file(path, O_RDONLY, "open").map([&](unique_fd file) {
    return line_reader{std::move(file), path, offset};
  });
}

expected<void> line_reader::reopen() {
  return open_file(path_, O_RDONLY, "open").map([this](unique_fd file) {
    file_ = std::move(file);
    buffer_.clear();
    begin_ = 0;
  });
}

expected<std::optional<std::string_view>> line_reader::next() {
  auto searched = begin_;
  for (;;) {
    auto end = buffer_.find('\n', searched);
    if (end != std::string::npos) {
      auto line = std::string_view{buffer_}.substr(begin_, end + 1 - begin_);
      begin_ = end + 1;
      offset_ += line.size();
      return std::optional{line};
    }
    buffer_.erase(0, begin_);
    begin_ = 0;
    searched = buffer_.size();
    TROUPE_TRY(auto more, fill());
    if (!more) {
      // The half of a line that is here may be cut off before the next call.
      buffer_.clear();
      return std::optional<std::string_view>{};
    }
  }
}

expected<bool> line_reader::fill() {
  auto old_size = buffer_.size();
  buffer_.resize(old_size + read_size);
  auto count = uninterrupted([&] {
    return ::pread(file_.get(), buffer_.data() + old_size, read_size,
                   static_cast<off_t>(offset_ + old_size));
  });
  auto code = errno;
  buffer_.resize(old_size + static_cast<std::size_t>(count > 0 ? count : 0));
  if (count < 0)
    return tl::unexpected{storage_error("read", path_, code)};
  return count > 0;
}

expected<journal_reader> journal_reader::open(const fs::path& path,
                                              std::uint64_t offset,
                                              std::size_t ranks) {
  return line_reader::open(path, offset).map([ranks](line_reader lines) {
    return journal_reader{std::move(lines), ranks};
  });
}

expected<std::optional<journal_entry>> journal_reader::next() {
  for (;;) {
    auto begin = lines_.offset();
    TROUPE_TRY(auto line, lines_.next());
    if (!line)
      return std::optional<journal_entry>{};
    auto what =
      concat(lines_.path().string(), " line ", ++line_, " (byte ", begin, ")");
    auto entry = parse_line(*line, what, ranks_);
    if (!entry || *entry)
      return entry;
  }
}

expected<void>
journal_reader::read_rest(const std::function<void(journal_entry)>& add,
                          const std::function<void(error)>& damaged) {
  for (;;) {
    auto entry = next();
    if (entry && !*entry)
      return {};
    if (entry)
      add(std::move(**entry));
    else if (entry.error().code == ec::corrupt)
      damaged(std::move(entry.error()));
    else
      return tl::unexpected{std::move(entry.error())};
  }
}

expected<std::optional<journaled_batch>> read_last_batch(const fs::path& path) {
  TROUPE_TRY(auto lines, line_reader::open(path, 0));
  std::string last;
  for (;;) {
    TROUPE_TRY(auto line, lines.next());
    if (!line)
      break;
    auto head = parse_line_head(*line);
    if (head && head->index && has_valid_sum(*line))
      last = *line;
  }
  if (last.empty())
    return std::optional<journaled_batch>{};
  TROUPE_TRY(auto entry, parse_line(last, path.string()));
  if (entry)
    if (auto row = std::get_if<journaled_batch>(&*entry))
      return std::optional{std::move(*row)};
  return std::optional<journaled_batch>{};
}

expected<last_attempt> read_last_attempt(const fs::path& path) {
  TROUPE_TRY(auto lines, line_reader::open(path, 0));
  last_attempt result;
  auto preempted = false;
  for (;;) {
    TROUPE_TRY(auto line, lines.next());
    if (!line)
      return result;
    auto head = parse_line_head(*line);
    if (!head || head->index)
      continue;
    auto entry = parse_line(*line, path.string());
    if (!entry || !*entry)
      continue; // A damaged line: what follows counts.
    auto event = std::get_if<journal_event>(&**entry);
    if (!event)
      continue;
    if (event->kind == event_kind::attempt_begun) {
      result = {.stop_reason = std::move(result.stop_reason)};
      preempted = false;
    } else if (event->kind == event_kind::stop_decided) {
      if (auto reason = event->fields.find("reason"))
        result.stop_reason = to_string(*reason);
    } else if (event->kind == event_kind::preempted) {
      preempted = true;
    } else if (event->kind == event_kind::ranks_failed && !preempted) {
      result.failure = std::move(*event);
    } else if (event->kind == event_kind::run_ended
               || event->kind == event_kind::driver_lost) {
      result.end = std::move(*event);
    }
  }
}

expected<double> read_driven_seconds(const fs::path& path) {
  struct driver_times {
    std::optional<std::int64_t> first_us;
    std::int64_t last_us = 0;
  };
  TROUPE_TRY(auto lines, line_reader::open(path, 0));
  driver_times driver, before_batch;
  std::int64_t total_us = 0;
  auto end_driver = [&] {
    if (driver.first_us)
      total_us += driver.last_us - *driver.first_us;
    driver = {};
  };
  for (;;) {
    TROUPE_TRY(auto line, lines.next());
    if (!line)
      break;
    auto head = parse_line_head(*line);
    if (!head || !has_valid_sum(*line))
      continue;
    auto kind = head->index ? std::string{} : kind_of(*line, path);
    // All three may come from the next driver, the last one behind the batch
    // that it is about. Between an end and the next attempt there may be events
    // of either driver.
    if (kind == event_kind::run_ended || kind == event_kind::driver_lost) {
      end_driver();
    } else if (kind == event_kind::journal_completed) {
      driver = before_batch;
    } else {
      if (head->index)
        before_batch = driver;
      if (!driver.first_us && kind == event_kind::attempt_begun)
        driver.first_us = head->time_us;
      driver.last_us = head->time_us;
    }
  }
  end_driver();
  return static_cast<double>(total_us) / 1e6;
}

expected<batch_reader> batch_reader::open(const fs::path& path,
                                          std::uint64_t first) {
  return line_reader::open(path, 0).map([first](line_reader lines) {
    return batch_reader{std::move(lines), first};
  });
}

expected<std::optional<journaled_batch>> batch_reader::next() {
  for (;;) {
    TROUPE_TRY(auto line, lines_.next());
    if (!line)
      return std::optional<journaled_batch>{};
    auto head = parse_line_head(*line);
    if (!head || !head->index || *head->index < first_)
      continue;
    auto entry = parse_line(*line, lines_.path().string());
    if (entry && *entry)
      if (auto row = std::get_if<journaled_batch>(&**entry))
        return std::optional{std::move(*row)};
  }
}

} // namespace troupe::internal
