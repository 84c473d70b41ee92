#include "troupe/runtime/journal/journal_reader.hpp"

#include <string>

#include "troupe/runtime/storage/checked_text.hpp"

namespace troupe {

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
    auto line = lines_.next();
    if (!line)
      return tl::unexpected{line.error()};
    if (!*line)
      return std::optional<journal_entry>{};
    auto what = lines_.path().string() + " line " + std::to_string(++line_)
                + " (byte " + std::to_string(begin) + ")";
    auto entry = parse_line(**line, what, ranks_);
    if (!entry || *entry)
      return entry;
  }
}

expected<std::optional<history_row>> read_last_batch(const fs::path& path) {
  auto lines = line_reader::open(path, 0);
  if (!lines)
    return tl::unexpected{lines.error()};
  std::string last;
  for (;;) {
    auto line = lines->next();
    if (!line)
      return tl::unexpected{line.error()};
    if (!*line)
      break;
    auto head = parse_line_head(**line);
    if (head && head->index && has_valid_sum(**line))
      last = **line;
  }
  if (last.empty())
    return std::optional<history_row>{};
  auto entry = parse_line(last, path.string());
  if (!entry)
    return tl::unexpected{entry.error()};
  if (*entry)
    if (auto row = std::get_if<history_row>(&**entry))
      return std::optional{std::move(*row)};
  return std::optional<history_row>{};
}

expected<last_attempt> read_last_attempt(const fs::path& path) {
  auto lines = line_reader::open(path, 0);
  if (!lines)
    return tl::unexpected{lines.error()};
  last_attempt result;
  auto preempted = false;
  for (;;) {
    auto line = lines->next();
    if (!line)
      return tl::unexpected{line.error()};
    if (!*line)
      return result;
    auto head = parse_line_head(**line);
    if (!head || head->index)
      continue;
    auto entry = parse_line(**line, path.string());
    if (!entry || !*entry)
      continue; // A damaged line: what follows counts.
    auto event = std::get_if<journal_event>(&**entry);
    if (!event)
      continue;
    if (event->kind == "attempt_begun") {
      result = {};
      preempted = false;
    } else if (event->kind == "preempted") {
      preempted = true;
    } else if (event->kind == "ranks_failed" && !preempted) {
      result.failure = std::move(*event);
    } else if (event->kind == "run_ended" || event->kind == "driver_lost") {
      result.end = std::move(*event);
    }
  }
}

expected<batch_reader> batch_reader::open(const fs::path& path,
                                          std::uint64_t first) {
  return line_reader::open(path, 0).map([first](line_reader lines) {
    return batch_reader{std::move(lines), first};
  });
}

expected<std::optional<history_row>> batch_reader::next() {
  for (;;) {
    auto line = lines_.next();
    if (!line)
      return tl::unexpected{line.error()};
    if (!*line)
      return std::optional<history_row>{};
    auto head = parse_line_head(**line);
    if (!head || !head->index || *head->index < first_)
      continue;
    auto entry = parse_line(**line, lines_.path().string());
    if (entry && *entry)
      if (auto row = std::get_if<history_row>(&**entry))
        return std::optional{std::move(*row)};
  }
}

} // namespace troupe
