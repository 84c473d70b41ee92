#include "troupe/runtime/store/journal_line.hpp"

#include <algorithm>
#include <charconv>

#include "troupe/runtime/storage/checksum.hpp"
#include "troupe/runtime/storage/json_fields.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

constexpr std::string_view attempt_field = ",\"attempt\":";
constexpr std::string_view time_field = ",\"time_us\":";
constexpr std::string_view batch_begin = "{\"batch\":";
constexpr std::string_view values_field = ",\"values\":";

void append_head(std::string& out, std::uint64_t attempt,
                 std::int64_t time_us) {
  out += attempt_field;
  json::append(out, attempt);
  out += time_field;
  json::append(out, static_cast<std::uint64_t>(time_us));
}

// Removes *prefix* and the number after it from *text*.
template <class T>
bool take_number(std::string_view& text, std::string_view prefix, T& number) {
  if (!text.starts_with(prefix))
    return false;
  text.remove_prefix(prefix.size());
  auto [end, code] =
    std::from_chars(text.data(), text.data() + text.size(), number);
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return code == std::errc{};
}

std::chrono::system_clock::time_point to_time(const json::document& x) {
  auto us = json::to_unsigned(json::field(x, "time_us"));
  return std::chrono::system_clock::time_point{
    std::chrono::microseconds{static_cast<std::int64_t>(us)}};
}

journaled_batch to_batch(const json::document& x) {
  journaled_batch result;
  result.index = json::to_unsigned(json::field(x, "batch"));
  result.attempt = json::to_unsigned(json::field(x, "attempt"));
  result.time = to_time(x);
  for (auto& values : json::field(x, "values"))
    result.values.push_back(json::to_metrics(values));
  if (x.contains("step_us"))
    for (auto& us : x["step_us"])
      result.step_s.push_back(json::to_seconds(us));
  if (x.contains("wait_us"))
    result.wait_s = json::to_seconds(x["wait_us"]);
  if (x.contains("checkpoint"))
    result.checkpoint = json::to_text(x["checkpoint"]);
  if (x.contains("checkpoint_us"))
    result.checkpoint_s = json::to_seconds(x["checkpoint_us"]);
  return result;
}

journal_event to_event(const json::document& x) {
  return {json::to_text(json::field(x, "event")),
          json::to_unsigned(json::field(x, "attempt")), to_time(x),
          json::to_metrics(json::field(x, "fields"))};
}

// *line* with `{}` for the values of each rank behind the first *ranks*.
std::string shortened(std::string_view line, std::size_t ranks) {
  auto at = line.find(values_field);
  if (at == std::string_view::npos)
    return std::string{line};
  at += values_field.size() + 1; // behind the bracket
  std::string result{line.substr(0, at)};
  std::size_t rank = 0, depth = 0, begin = at;
  for (; at < line.size() && (depth > 0 || line[at] != ']'); ++at) {
    if (line[at] == '"') {
      for (++at; at < line.size() && line[at] != '"'; ++at)
        at += line[at] == '\\' ? 1 : 0;
    } else if (line[at] == '{') {
      begin = depth++ == 0 ? at : begin;
    } else if (line[at] == '}' && depth > 0 && --depth == 0) {
      result += rank > 0 ? "," : "";
      result += rank++ < ranks ? line.substr(begin, at + 1 - begin) : "{}";
    }
  }
  return result += line.substr(std::min(at, line.size()));
}

std::optional<journal_entry> to_entry(const json::document& x) {
  if (x.contains("batch"))
    return to_batch(x);
  if (x.contains("event"))
    return to_event(x);
  json::check_format(x, journal_format, "journal");
  return std::nullopt;
}

} // namespace

void append_header_line(std::string& out) {
  out += concat("{\"journal\":", journal_format);
  append_sum(out);
}

void append_batch_line(std::string& out, std::uint64_t attempt,
                       std::int64_t time_us, const report_batch& batch,
                       std::string_view checkpoint, double checkpoint_s) {
  out += batch_begin;
  json::append(out, batch.index);
  append_head(out, attempt, time_us);
  out += values_field;
  json::append_list(out, batch.values, [](std::string& to, auto& values) {
    json::append(to, values);
  });
  if (!batch.step_s.empty()) {
    out += ",\"step_us\":";
    json::append_list(out, batch.step_s, json::append_us);
    out += ",\"wait_us\":";
    json::append_us(out, batch.wait_s);
  }
  if (!checkpoint.empty()) {
    out += ",\"checkpoint\":";
    json::append(out, checkpoint);
    out += ",\"checkpoint_us\":";
    json::append_us(out, checkpoint_s);
  }
  append_sum(out);
}

void append_event_line(std::string& out, std::uint64_t attempt,
                       std::int64_t time_us, std::string_view kind,
                       const metrics& fields) {
  out += "{\"event\":";
  json::append(out, kind);
  append_head(out, attempt, time_us);
  out += ",\"fields\":";
  json::append(out, fields);
  append_sum(out);
}

std::optional<journal_line_head> parse_line_head(std::string_view line) {
  journal_line_head result;
  if (line.starts_with(batch_begin)) {
    result.index.emplace();
    if (!take_number(line, batch_begin, *result.index))
      return std::nullopt;
  } else {
    auto head = line.find(attempt_field);
    if (head == std::string_view::npos)
      return std::nullopt;
    line.remove_prefix(head);
  }
  if (take_number(line, attempt_field, result.attempt)
      && take_number(line, time_field, result.time_us))
    return result;
  return std::nullopt;
}

expected<std::optional<journal_entry>>
parse_line(std::string_view line, const std::string& what, std::size_t ranks) {
  return verify_sum(line, what).and_then([&] {
    auto is_short = ranks == all_ranks || !line.starts_with(batch_begin);
    return is_short
             ? json::read<std::optional<journal_entry>>(line, what, to_entry)
             : json::read<std::optional<journal_entry>>(shortened(line, ranks),
                                                        what, to_entry);
  });
}

} // namespace troupe::internal
