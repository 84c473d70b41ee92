#include "troupe/callbacks/tracking/sink_position.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "troupe/runtime/journal/journal_line.hpp"
#include "troupe/runtime/journal/line_reader.hpp"
#include "troupe/runtime/storage/checked_text.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/json_reader.hpp"
#include "troupe/runtime/storage/json_writer.hpp"

namespace troupe {

namespace {

constexpr std::size_t max_bytes = 64 * 1024 * 1024;

void append_field(std::string& out, const char* name, std::string_view text) {
  out += std::string{",\""} + name + "\":";
  json::append(out, text);
}

/// Whether a line was written after the record at *x*.
bool is_later(const journal_line_head& line, const sink_position& x) {
  if (x.attempt && line.attempt != *x.attempt)
    return line.attempt > *x.attempt;
  return line.time_us > x.time_us;
}

sink_position to_position(const json::document& x) {
  json::check_format(x, 1);
  std::optional<std::uint64_t> attempt;
  if (x.contains("attempt"))
    attempt = json::to_unsigned(x["attempt"]);
  auto text = [&x](const char* name) {
    return json::to_text(json::field(x, name));
  };
  return {
    json::to_unsigned(json::field(x, "offset")),
    static_cast<std::int64_t>(json::to_unsigned(json::field(x, "time_us"))),
    attempt,
    text("line_end"),
    text("state"),
    {text("project"), text("experiment"), text("display_name"),
     run_status_from_string(text("loop_status"))}};
}

} // namespace

expected<void> save_position(const sink_position& x, const fs::path& path) {
  std::string out = "{\"format\":1,\"offset\":";
  json::append(out, x.offset);
  out += ",\"time_us\":";
  json::append(out, static_cast<std::uint64_t>(x.time_us));
  if (x.attempt) {
    out += ",\"attempt\":";
    json::append(out, *x.attempt);
  }
  append_field(out, "line_end", x.line_end);
  append_field(out, "state", x.state);
  append_field(out, "project", x.words.project);
  append_field(out, "experiment", x.words.experiment);
  append_field(out, "display_name", x.words.display_name);
  append_field(out, "loop_status",
               x.words.status ? to_string(*x.words.status) : "");
  append_sum(out);
  // From an earlier position a tracker sends again what it may have sent.
  return check_size(path, out, max_bytes).and_then([&] {
    return replace_file(path, out, after_power_cut::new_or_old_file);
  });
}

expected<std::optional<sink_position>> load_position(const fs::path& path) {
  auto found = look_up_link(path);
  if (!found)
    return tl::unexpected{found.error()};
  if (!found->exists())
    return std::optional<sink_position>{};
  return read_file(path, max_bytes).and_then([&](const std::string& text) {
    return verify_sum(text, path.string()).and_then([&] {
      return json::read<std::optional<sink_position>>(text, path.string(),
                                                      to_position);
    });
  });
}

expected<std::string> line_end_at(const fs::path& journal,
                                  std::uint64_t offset) {
  auto file = open_file(journal, O_RDONLY, "open");
  if (!file)
    return tl::unexpected{file.error()};
  std::string result(std::min<std::uint64_t>(offset, sum_size), '\0');
  auto count = ::pread(file->get(), result.data(), result.size(),
                       static_cast<off_t>(offset - result.size()));
  if (count < 0)
    return tl::unexpected{storage_error("read", journal, errno)};
  result.resize(static_cast<std::size_t>(count));
  return result;
}

expected<std::uint64_t> resume_offset(const sink_position& x,
                                      const fs::path& run_path) {
  auto journal = run_path / "journal.jsonl";
  auto found = line_end_at(journal, x.offset);
  if (!found)
    return tl::unexpected{found.error()};
  if (*found == x.line_end)
    return x.offset;
  auto lines = line_reader::open(journal, 0);
  if (!lines)
    return tl::unexpected{lines.error()};
  for (;;) {
    auto begin = lines->offset();
    auto line = lines->next();
    if (!line)
      return tl::unexpected{line.error()};
    if (!*line)
      return begin;
    auto head = parse_line_head(**line);
    if (head && is_later(*head, x) && has_valid_sum(**line))
      return begin;
  }
}

} // namespace troupe
