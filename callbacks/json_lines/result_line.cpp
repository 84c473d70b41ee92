#include "troupe/callbacks/json_lines/result_line.hpp"

#include <unistd.h>

#include <ctime>
#include <set>
#include <string_view>

namespace troupe {

namespace {

double seconds(std::chrono::system_clock::duration x) {
  return std::chrono::duration<double>(x).count();
}

std::string date_text(std::int64_t unix_seconds) {
  const auto time = static_cast<std::time_t>(unix_seconds);
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%d_%H-%M-%S", &parts)};
}

metrics own_members(const tracked_run& run, const tracker_record& record,
                    const history_row& row, const result_clock& clock) {
  const auto time_ms = unix_ms(record.time);
  metrics result{{"training_iteration", row.index + 1},
                 {"timestamp", time_ms / 1000},
                 {"date", date_text(time_ms / 1000)},
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
  if (const auto host = run.tags.find("host"); host != run.tags.end())
    result["hostname"] = host->second;
  result.add_group("config", run.config);
  return result;
}

std::string_view first_part(std::string_view name) {
  return name.substr(0, name.find('/'));
}

} // namespace

void append_result_line(std::string& out, const tracked_run& run,
                        const tracker_record& record, const history_row& row,
                        const result_clock& clock,
                        const result_json_options& options) {
  const auto values = values_of(row, options.ranks);
  std::set<std::string_view> taken;
  metrics members;
  for (const auto& [name, value] : values) {
    taken.insert(first_part(name));
    if (is_sent(options.numbers, value))
      members[name] = value;
  }
  for (const auto& [name, value] : own_members(run, record, row, clock))
    if (!taken.contains(first_part(name)))
      members[name] = value;
  append_json(out, members, options.spelling);
  out += '\n';
}

} // namespace troupe
