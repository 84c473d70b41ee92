#include "troupe/callbacks/tracking/record_reader.hpp"

#include <fcntl.h>

#include <algorithm>
#include <string_view>
#include <type_traits>

#include "troupe/callbacks/tracking/loop_record.hpp"
#include "troupe/callbacks/tracking/run_files.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/checksum.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/json_fields.hpp"
#include "troupe/runtime/store/journal_line.hpp"
#include "troupe/runtime/store/journal_reader.hpp"

namespace troupe::internal {

namespace {

constexpr std::size_t max_bytes = 64 * 1024 * 1024;

/// Whether a line was written after the record at *x*.
bool is_later(const journal_line_head& line, const sink_position& x) {
  if (x.attempt && line.attempt != *x.attempt)
    return line.attempt > *x.attempt;
  return line.time_us > x.time_us;
}

} // namespace

namespace json {

template <class Fields>
void fields_of(Fields& f, sink_position& x) {
  f.format(1)("offset", x.offset)("time_us", x.time_us);
  f.if_set("attempt", x.attempt);
  f("line_end", x.line_end)("state", x.state);
  f("project", x.hints.project)("experiment", x.hints.experiment);
  f("display_name", x.hints.display_name);
  auto& status = x.hints.status;
  f("loop_status", text_as([&] { return status ? to_string(*status) : ""; },
                           [&](const document& in) {
                             status = run_status_from_string(to_text(in));
                           }));
}

} // namespace json

expected<record_reader> record_reader::open(const fs::path& run_path,
                                            std::uint64_t offset,
                                            tracking_hints hints,
                                            std::size_t ranks) {
  return journal_reader::open(run_path / run_layout::journal, offset, ranks)
    .map([&](journal_reader journal) {
      return record_reader{std::move(journal), run_path, std::move(hints)};
    });
}

expected<std::optional<tracker_record>> record_reader::next() {
  for (;;) {
    if (!entry_) {
      begin_ = journal_.offset();
      auto entry = journal_.next();
      if (!entry) {
        if (entry.error().code == ec::corrupt)
          continue; // The reader is at the next line already.
        return tl::unexpected{entry.error()};
      }
      if (!*entry)
        return std::optional<tracker_record>{};
      entry_ = std::move(**entry);
    }
    TROUPE_TRY(auto record, convert(*entry_));
    entry_.reset();
    if (record)
      return record;
  }
}

expected<std::optional<tracker_record>>
record_reader::convert(journal_entry& entry) {
  if (auto row = std::get_if<journaled_batch>(&entry)) {
    // A checkpoint is a name in `checkpoints/`, never a path.
    if (row->checkpoint.find('/') != std::string::npos
        || row->checkpoint == "..")
      row->checkpoint.clear();
    auto attempt = row->attempt;
    auto time = row->time;
    return std::optional{
      tracker_record{attempt, time, journal_.offset(), std::move(*row)}};
  }
  auto& event = std::get<journal_event>(entry);
  TROUPE_TRY(auto found, content_of(event));
  if (!found)
    return std::optional<tracker_record>{};
  return std::optional{tracker_record{event.attempt, event.time,
                                      journal_.offset(), std::move(*found)}};
}

expected<record_reader::content>
record_reader::content_of(const journal_event& event) {
  auto& fields = event.fields;
  if (event.kind == event_kind::attempt_begun) {
    hints_.status.reset();
    return content{attempt_record{static_cast<std::uint64_t>(
      fields.find_number("first_report").value_or(0))}};
  }
  if (event.kind == event_kind::run_ended) {
    auto name = fields.find("status");
    auto status = run_status_from_string(name ? to_string(*name) : "")
                    .value_or(run_status_kind::errored);
    if (status == run_status_kind::finished && hints_.status)
      status = *hints_.status;
    return content{run_end_record{status}};
  }
  auto record = to_loop_record(event.kind, fields);
  if (!record)
    return content{};
  return std::visit([this](auto& x) { return content_of(std::move(x)); },
                    *record);
}

template <class T>
expected<record_reader::content> record_reader::content_of(T x) {
  if constexpr (std::is_same_v<T, loop_start>) {
    hints_ = {std::move(x.project), std::move(x.experiment),
              std::move(x.display_name), hints_.status};
    return content{};
  } else if constexpr (std::is_same_v<T, loop_finish>) {
    hints_.status = x.status;
    return content{};
  } else {
    if constexpr (std::is_same_v<T, logged_image>) {
      TROUPE_TRY(auto found, find_in_run(x.file));
      if (!found)
        return content{};
    } else if constexpr (std::is_same_v<T, logged_artifact>) {
      TROUPE_TRY(auto found, find_in_run(x.path));
      if (!found)
        return content{};
    }
    return content{std::move(x)};
  }
}

expected<bool> record_reader::find_in_run(fs::path& file) const {
  TROUPE_TRY(auto inside, is_inside(run_path_, file.string()));
  if (!inside)
    return false; // Troupe never writes such a name.
  file = run_path_ / file;
  return true;
}

expected<void> save_position(const sink_position& x, const fs::path& path) {
  auto out = json::open_object(x, ",");
  append_sum(out);
  // An older position is safe: the tracker then sends some records again.
  return check_size(path, out, max_bytes).and_then([&] {
    return replace_file(path, out, after_power_cut::new_or_old_file);
  });
}

expected<std::optional<sink_position>> load_position(const fs::path& path) {
  TROUPE_TRY(auto found, look_up_link(path));
  if (!found.exists())
    return std::optional<sink_position>{};
  return read_file(path, max_bytes).and_then([&](const std::string& text) {
    return verify_sum(text, path.string()).and_then([&] {
      return json::read<std::optional<sink_position>>(
        text, path.string(), json::from_fields<sink_position>);
    });
  });
}

expected<std::string> line_end_at(const fs::path& journal,
                                  std::uint64_t offset) {
  TROUPE_TRY(auto file, open_file(journal, O_RDONLY, "open"));
  auto size = std::min<std::uint64_t>(offset, sum_size);
  return read_range(file, journal, offset - size, size);
}

expected<std::uint64_t> resume_offset(const sink_position& x,
                                      const fs::path& run_path) {
  auto journal = run_path / run_layout::journal;
  TROUPE_TRY(auto found, line_end_at(journal, x.offset));
  if (found == x.line_end)
    return x.offset;
  TROUPE_TRY(auto lines, line_reader::open(journal, 0));
  for (;;) {
    auto begin = lines.offset();
    TROUPE_TRY(auto line, lines.next());
    if (!line)
      return begin;
    auto head = parse_line_head(*line);
    if (head && is_later(*head, x) && has_valid_sum(*line))
      return begin;
  }
}

} // namespace troupe::internal
