#include "troupe/callbacks/tracking/record_reader.hpp"

#include <charconv>
#include <string_view>

#include "troupe/callbacks/tracking/event_kinds.hpp"
#include "troupe/callbacks/tracking/run_files.hpp"

namespace troupe {

namespace {

std::string text_in(const metrics& fields, std::string_view name) {
  auto value = fields.find(name);
  if (!value)
    return {};
  auto text = std::get_if<std::string>(&value->variant());
  return text ? *text : std::string{};
}

std::int64_t integer_of(const metrics& fields, std::string_view name) {
  auto value = fields.find(name);
  if (!value)
    return 0;
  auto number = std::get_if<std::int64_t>(&value->variant());
  return number ? *number : 0;
}

/// The fields `v/<name>`.
metrics values_in(const metrics& fields) {
  constexpr std::string_view prefix = "v/";
  metrics result;
  for (auto& [name, value] : fields)
    if (name.starts_with(prefix))
      result[name.substr(prefix.size())] = value;
  return result;
}

/// Numbers with blanks between them.
std::vector<double> numbers_in(std::string_view text) {
  std::vector<double> result;
  auto at = text.data();
  auto end = text.data() + text.size();
  while (at < end) {
    double x = 0;
    auto [rest, code] = std::from_chars(at, end, x);
    if (code != std::errc{})
      break;
    result.push_back(x);
    at = rest + (rest < end ? 1 : 0);
  }
  return result;
}

logged_histogram histogram_of(const metrics& fields) {
  auto number = [&](std::string_view name) {
    return fields.number(name).value_or(0);
  };
  return {integer_of(fields, "step"),
          text_in(fields, "name"),
          number("min"),
          number("max"),
          number("sum"),
          number("sum_squares"),
          numbers_in(text_in(fields, "limits")),
          numbers_in(text_in(fields, "counts"))};
}

run_status_kind status_in(const metrics& fields) {
  return run_status_from_string(text_in(fields, "status"))
    .value_or(run_status_kind::errored);
}

} // namespace

expected<record_reader> record_reader::open(const fs::path& run_path,
                                            std::uint64_t offset,
                                            loop_words words,
                                            std::size_t ranks) {
  return journal_reader::open(run_path / "journal.jsonl", offset, ranks)
    .map([&](journal_reader journal) {
      return record_reader{std::move(journal), run_path, std::move(words)};
    });
}

expected<std::optional<tracker_record>> record_reader::next() {
  for (;;) {
    auto entry = journal_.next();
    if (!entry) {
      if (entry.error().code == ec::corrupt)
        continue; // The reader has gone on to the next line.
      return tl::unexpected{entry.error()};
    }
    if (!*entry)
      return std::optional<tracker_record>{};
    if (auto record = convert(std::move(**entry)))
      return record;
  }
}

std::optional<tracker_record> record_reader::convert(journal_entry entry) {
  if (auto row = std::get_if<history_row>(&entry)) {
    // A checkpoint is a name in `checkpoints/`, and nothing else.
    if (row->checkpoint.find('/') != std::string::npos
        || row->checkpoint == "..")
      row->checkpoint.clear();
    auto attempt = row->attempt;
    auto time = row->time;
    return tracker_record{attempt, time, offset(), std::move(*row)};
  }
  auto& event = std::get<journal_event>(entry);
  auto content = content_of(event);
  if (!content)
    return std::nullopt;
  return tracker_record{event.attempt, event.time, offset(),
                        std::move(*content)};
}

std::optional<tracker_record::content_type>
record_reader::content_of(const journal_event& event) {
  using namespace event_kind;
  auto& fields = event.fields;
  auto step = integer_of(fields, "step");
  auto name = text_in(fields, "name");
  auto file = text_in(fields, "file");
  if ((event.kind == tracker_image || event.kind == tracker_artifact)
      && !is_inside(run_path_, file))
    return std::nullopt; // Nothing of ours names such a file.
  auto integer = [&](std::string_view field) {
    return static_cast<int>(integer_of(fields, field));
  };
  if (event.kind == attempt_begun) {
    words_.status.reset();
    return attempt_record{
      static_cast<std::uint64_t>(integer_of(fields, "first_report"))};
  }
  if (event.kind == run_ended) {
    auto status = status_in(fields);
    if (status == run_status_kind::finished && words_.status)
      status = *words_.status;
    return run_end_record{status};
  }
  if (event.kind == tracker_start)
    words_ = {text_in(fields, "project"), text_in(fields, "experiment"),
              text_in(fields, "display_name"), words_.status};
  else if (event.kind == tracker_finish)
    words_.status = status_in(fields);
  else if (event.kind == tracker_log)
    return logged_metrics{step, values_in(fields)};
  else if (event.kind == tracker_params)
    return logged_params{values_in(fields)};
  else if (event.kind == tracker_text)
    return logged_text{step, name, text_in(fields, "text")};
  else if (event.kind == tracker_image)
    return logged_image{step,
                        name,
                        run_path_ / file,
                        integer("width"),
                        integer("height"),
                        integer("channels")};
  else if (event.kind == tracker_histogram)
    return histogram_of(fields);
  else if (event.kind == tracker_artifact)
    return logged_artifact{run_path_ / file, name};
  return std::nullopt;
}

} // namespace troupe
