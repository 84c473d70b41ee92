#include "troupe/callbacks/csv/csv_sink.hpp"

#include <algorithm>
#include <set>
#include <utility>
#include <variant>

#include "troupe/callbacks/tracking/option_fields.hpp"
#include "troupe/callbacks/tracking/sink.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/json.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/unix_time.hpp"

namespace troupe::internal {

namespace {

// The columns that every file begins with.
const std::vector<std::string> own_columns{"index", "attempt",    "time",
                                           "step",  "world_size", "checkpoint"};

// Names that *table* lacks, in order of appearance, but with `epoch` first.
std::vector<std::string> new_names(const csv::table& table,
                                   const std::vector<metrics>& rows) {
  std::vector<std::string> result;
  std::set<std::string_view> seen;
  for (const auto& name : own_columns)
    if (!table.has_column(name)) {
      result.push_back(name);
      seen.insert(name);
    }
  auto own = static_cast<std::ptrdiff_t>(result.size());
  for (const auto& row : rows)
    for (const auto& [name, value] : row)
      if (!table.has_column(name) && seen.insert(name).second)
        result.push_back(name);
  auto epoch = std::find(result.begin() + own, result.end(), "epoch");
  if (epoch != result.end())
    std::rotate(result.begin() + own, epoch, epoch + 1);
  return result;
}

} // namespace

csv_sink::csv_sink(csv_options options) : options_(std::move(options)) {}

std::string csv_sink::options() const {
  return options_json(options_);
}

expected<void> csv_sink::check(const tracked_run&) const {
  const fs::path file{options_.file};
  // Files that end in ".new" are replacements under construction.
  if (file.empty() || file.filename() != file || file.filename_is_dot()
      || file.filename_is_dot_dot() || file.extension() == ".new"
      || run_layout::is_own_name(options_.file))
    return failure(ec::invalid_config, "file '" + options_.file
                                         + "' cannot be a table in the run's "
                                           "folder: give a name like "
                                           "metrics.csv");
  return {};
}

sink_result csv_sink::start(const tracked_run& run, const std::string& state) {
  path_ = run.path / options_.file;
  over_ = run.cancelled;
  rows_.reset();
  if (!state.empty()) {
    auto rows = json::read<std::uint64_t>(
      state, "csv: the saved state", [](const json::document& x) {
        return json::to_unsigned(json::field(x, "rows"));
      });
    if (!rows)
      return sink_fails(sink_failure::kind::permanent, rows.error());
    rows_ = *rows;
  }
  return open();
}

sink_result csv_sink::open() {
  table_.reset();
  auto opened = csv::table::open(path_, rows_, over_);
  if (!opened)
    return file_result(tl::unexpected{opened.error()});
  rows_ = opened->rows();
  table_ = std::move(*opened);
  return {};
}

sink_result csv_sink::log(std::span<const tracker_record> records) {
  if (!table_)
    TROUPE_TRY_VOID(open());
  auto done = write(records);
  if (!done)
    table_.reset();
  return file_result(done);
}

expected<void> csv_sink::write(std::span<const tracker_record> records) {
  std::vector<metrics> rows;
  for (const auto& record : records)
    if (auto cells = cells_of(record))
      rows.push_back(std::move(*cells));
  if (rows.empty())
    return {};
  return table_->add_columns(new_names(*table_, rows))
    .and_then([&] { return table_->append(rows); })
    .map([&] { rows_ = table_->rows(); });
}

std::optional<metrics> csv_sink::cells_of(const tracker_record& record) const {
  metrics own{{"attempt", record.attempt}, {"time", unix_seconds(record.time)}};
  metrics values;
  if (const auto* row = std::get_if<journaled_batch>(&record.content)) {
    values = values_of(*row, options_.ranks);
    own["index"] = own["step"] = row->index;
    own["world_size"] = row->values.size();
    if (!row->checkpoint.empty())
      own["checkpoint"] = row->checkpoint;
  } else if (const auto* logged =
               std::get_if<logged_metrics>(&record.content)) {
    values = logged->values;
    own["step"] = logged->step;
  } else {
    return std::nullopt;
  }
  for (const auto& [name, value] : values)
    if (is_sent(options_.non_finite, value))
      own[utf8_text(name)] = value;
  return own;
}

sink_result csv_sink::finish(run_status_kind,
                             std::chrono::system_clock::time_point) {
  table_.reset();
  return {};
}

std::string csv_sink::state() const {
  return json::document{{"rows", rows_.value_or(0)}}.dump();
}

} // namespace troupe::internal

namespace troupe {

std::shared_ptr<tracker> csv_tracker(csv_options options,
                                     tracker_options tracking) {
  return internal::make_tracker<internal::csv_sink>(std::move(options),
                                                    tracking);
}

} // namespace troupe
