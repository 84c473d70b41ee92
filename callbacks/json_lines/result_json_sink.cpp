#include "troupe/callbacks/json_lines/result_json_sink.hpp"

#include <unistd.h>

#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <variant>

#include "troupe/callbacks/tracking/option_fields.hpp"
#include "troupe/callbacks/tracking/sink.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/json.hpp"
#include "troupe/runtime/store/journal_reader.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/unix_time.hpp"

namespace troupe::internal {

namespace {

double seconds(std::chrono::system_clock::duration x) {
  return std::chrono::duration<double>(x).count();
}

metrics own_members(const tracked_run& run, const tracker_record& record,
                    const journaled_batch& row, const result_clock& clock) {
  auto time_ms = unix_ms(record.time);
  metrics result{{"training_iteration", row.index + 1},
                 {"timestamp", time_ms / 1000},
                 {"date", utc_text(record.time, "%Y-%m-%d_%H-%M-%S")},
                 {"time_this_iter_s", seconds(clock.iteration)},
                 {"time_total_s", seconds(clock.total)},
                 {"time_since_restore", seconds(record.time - clock.restore)},
                 {"iterations_since_restore", clock.iterations},
                 {"trial_id", run.id},
                 {"pid", static_cast<std::int64_t>(::getpid())},
                 {"done", false},
                 {"should_checkpoint", !row.checkpoint.empty()},
                 {"step", row.index},
                 {"time_ms", time_ms},
                 {"attempt", record.attempt},
                 {"seq", record.end},
                 {"world_size", row.values.size()}};
  if (!row.checkpoint.empty())
    result["checkpoint_dir_name"] = row.checkpoint;
  if (auto host = run.tag("host"); !host.empty())
    result["hostname"] = host;
  result.add_group("config", run.config);
  return result;
}

std::string_view first_part(std::string_view name) {
  return name.substr(0, name.find('/'));
}

using std::chrono::duration_cast;
using std::chrono::microseconds;
using std::chrono::system_clock;

constexpr std::size_t max_params_bytes = 1 << 24;

std::int64_t us(system_clock::duration x) {
  return duration_cast<microseconds>(x).count();
}

system_clock::duration from_us(const json::document& x, const char* name) {
  return duration_cast<system_clock::duration>(
    microseconds{json::field(x, name).get<std::int64_t>()});
}

// The size of the complete lines of *path*, in bytes.
expected<std::uint64_t> whole_lines(const fs::path& path) {
  TROUPE_TRY(auto lines, line_reader::open(path, 0));
  for (;;) {
    TROUPE_TRY(auto line, lines.next());
    if (!line)
      return lines.offset();
  }
}

/// Appends the line for *row*, the content of *record*, which *clock* has
/// already counted.
///
/// It has the metrics under their own names, groups as objects, the members of
/// Ray's earlier `result.json` (`training_iteration` from 1, `timestamp` and
/// the `time_…_s` in seconds, `date` in UTC, …) and `step`, `time_ms`,
/// `attempt`, `seq`, `world_size`. A metric replaces a member of the same name.
void append_result_line(std::string& out, const tracked_run& run,
                        const tracker_record& record,
                        const journaled_batch& row, const result_clock& clock,
                        const result_json_options& options) {
  auto values = values_of(row, options.ranks);
  std::set<std::string_view> taken;
  metrics members;
  for (const auto& [name, value] : values) {
    taken.insert(first_part(name));
    if (is_sent(options.non_finite, value))
      members[name] = value;
  }
  for (const auto& [name, value] : own_members(run, record, row, clock))
    if (!taken.contains(first_part(name)))
      members[name] = value;
  append_json(out, members, options.spelling);
  out += '\n';
}

} // namespace

result_json_sink::result_json_sink(result_json_options options)
  : options_(options) {}

std::string result_json_sink::options() const {
  return options_json(options_);
}

sink_result result_json_sink::start(const tracked_run& run,
                                    const std::string& state) {
  run_ = run;
  size_.reset();
  clock_ = {};
  clock_.begin(run.start_time);
  if (!state.empty()) {
    auto read = json::read<bool>(
      state, "result_json: the saved state", [this](const json::document& x) {
        clock_.last = result_clock::time_point{from_us(x, "last_us")};
        clock_.restore = result_clock::time_point{from_us(x, "restore_us")};
        clock_.total = from_us(x, "total_us");
        clock_.iterations = json::to_unsigned(json::field(x, "iterations"));
        size_ = json::to_unsigned(json::field(x, "size"));
        return true;
      });
    if (!read)
      return sink_fails(sink_failure::kind::permanent, read.error());
  }
  return file_result(open().and_then([&] { return add_params(run.config); }));
}

expected<void> result_json_sink::open() {
  auto path = run_.path / run_layout::result;
  TROUPE_TRY(auto file, size_ ? record_file::open(path, run_.cancelled)
                              : record_file::open_new(path, run_.cancelled));
  auto size = size_.value_or(0);
  if (file.size() < size) { // Someone shortened it.
    TROUPE_TRY(auto whole, whole_lines(path));
    size = whole;
  }
  return file.cut(size).map([&] {
    size_ = size;
    file_ = std::move(file);
  });
}

sink_result result_json_sink::log(std::span<const tracker_record> records) {
  auto done = file_ ? expected<void>{} : open();
  if (done)
    done = write(records);
  if (!done)
    file_.reset();
  return file_result(done);
}

expected<void>
result_json_sink::write(std::span<const tracker_record> records) {
  std::string lines;
  metrics params;
  auto clock = clock_;
  for (const auto& record : records) {
    if (const auto* row = std::get_if<journaled_batch>(&record.content)) {
      clock.count(record.time);
      append_result_line(lines, run_, record, *row, clock, options_);
    } else if (const auto* x = std::get_if<logged_params>(&record.content)) {
      for (const auto& [name, value] : x->values)
        params[name] = value;
    } else if (std::holds_alternative<attempt_record>(record.content)) {
      clock.begin(record.time);
    }
  }
  return (params.empty() ? expected<void>{} : add_params(params))
    .and_then([&] { return file_->append(lines); })
    .and_then([&] { return file_->commit(); })
    .map([&] {
      clock_ = clock;
      size_ = file_->size();
    });
}

expected<void> result_json_sink::add_params(const metrics& params) const {
  auto path = run_.path / run_layout::params;
  auto all = json::document::object();
  std::string before;
  TROUPE_TRY(auto known, look_up(path));
  if (known.exists()) {
    TROUPE_TRY(auto text, read_file(path, max_params_bytes));
    before = std::move(text);
    auto found = json::parse(before);
    if (found.is_object())
      all = std::move(found);
  }
  std::string added;
  append_json(added, params);
  all.merge_patch(json::document::parse(added));
  auto after = all.dump(2) + '\n';
  if (after == before)
    return {};
  return may_write(run_.cancelled, path).and_then([&] {
    return replace_file(path, after);
  });
}

sink_result result_json_sink::finish(run_status_kind,
                                     system_clock::time_point) {
  file_.reset();
  return {};
}

std::string result_json_sink::state() const {
  return json::document{{"size", size_.value_or(0)},
                        {"last_us", unix_us(clock_.last)},
                        {"restore_us", unix_us(clock_.restore)},
                        {"total_us", us(clock_.total)},
                        {"iterations", clock_.iterations}}
    .dump();
}

} // namespace troupe::internal

namespace troupe {

std::shared_ptr<tracker> result_json_tracker(result_json_options options,
                                             tracker_options tracking) {
  return internal::make_tracker<internal::result_json_sink>(std::move(options),
                                                            tracking);
}

} // namespace troupe
