#include "troupe/callbacks/report_page/run_facts.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "troupe/callbacks/report_page/page_text.hpp"
#include "troupe/callbacks/tracking/run_files.hpp"
#include "troupe/callbacks/tracking/tracked_run.hpp"
#include "troupe/runtime/process/secrets.hpp"
#include "troupe/runtime/rank_logs.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/checksum.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/json.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

constexpr std::size_t max_description_bytes = 64 * 1024 * 1024;
constexpr std::size_t max_config_rows = 1000;
constexpr std::size_t max_value_bytes = 2000;
constexpr std::size_t max_logs = 64;
constexpr std::size_t max_log_bytes = 32 * 1024;      // of one rank
constexpr std::size_t max_all_log_bytes = 512 * 1024; // of all together
constexpr std::size_t max_log_lines = 200;

// A text that is not a JSON object is shown as it is.
run_facts::name_values flat_config(const std::string& text) {
  run_facts::name_values result;
  for (auto& [name, value] : config_values(text)) {
    if (result.size() == max_config_rows) {
      result.emplace_back("…", "more values are in run.json");
      break;
    }
    result.emplace_back(name, shortened(to_string(value), max_value_bytes));
  }
  auto is_object = text.find_first_not_of(" \n\t{}") == text.npos
                   || text[text.find_first_not_of(" \n\t")] == '{';
  if (result.empty() && !is_object)
    result.emplace_back("config", shortened(text, max_value_bytes));
  return result;
}

// Field by field: older versions wrote fewer of them.
void read_description(const json::document& x, run_facts& to) {
  static constexpr std::array<std::array<const char*, 2>, 10> labels{
    {{"begun", "First begun"},
     {"time", "Driver started"},
     {"host", "Host"},
     {"user", "User"},
     {"uid", "User id"},
     {"program", "Program"},
     {"pid", "Driver's process id"},
     {"troupe", "Troupe"},
     {"compiler", "Compiler"},
     {"id", "Run id"}}};
  json::check_format(x, 1);
  if (x.contains("name"))
    to.name = json::to_text(x["name"]);
  if (x.contains("config"))
    to.config = flat_config(json::to_text(x["config"]));
  for (auto [field, label] : labels)
    if (x.contains(field))
      to.environment.emplace_back(label, x[field].is_number()
                                           ? x[field].dump()
                                           : json::to_text(x[field]));
}

expected<void> read_description(const fs::path& path, run_facts& to) {
  return read_file(path, max_description_bytes)
    .and_then([&](const std::string& text) {
      return verify_sum(text, path.string()).and_then([&] {
        return json::read<run_facts>(text, path.string(),
                                     [&](const json::document& x) {
                                       auto result = to;
                                       read_description(x, result);
                                       return result;
                                     });
      });
    })
    .map([&](run_facts x) { to = std::move(x); });
}

std::vector<std::pair<int, std::string>> log_files(const fs::path& folder) {
  std::vector<std::pair<int, std::string>> result;
  boost::system::error_code code;
  for (fs::directory_iterator i{folder, code}, end; !code && i != end;
       i.increment(code))
    if (auto name = i->path().filename().string();
        auto rank = rank_of_log(name))
      result.emplace_back(*rank, std::move(name));
  std::ranges::sort(result);
  return result;
}

/// Cuts *text* to its last `max_log_lines` lines; true if it was cut.
bool keep_last_lines(std::string& text) {
  std::size_t lines = 0;
  auto i = text.size();
  if (i > 0 && text[i - 1] == '\n')
    --i; // ends the last line
  while (i > 0)
    if (text[--i] == '\n' && ++lines == max_log_lines) {
      text.erase(0, i + 1);
      return true;
    }
  return false;
}

// What a link in the folder leads to is not the run's: a page of a stranger's
// run would show the reader's own files.
expected<log_tail> read_tail(const fs::path& run_path, const std::string& name,
                             std::size_t limit) {
  auto path = run_path / run_layout::logs / name;
  TROUPE_TRY(auto file, open_inside(run_path, "logs/" + name));
  struct stat info {};
  if (::fstat(file.get(), &info) != 0)
    return tl::unexpected{storage_error("read", path, errno)};
  auto size = static_cast<std::size_t>(info.st_size);
  auto begin = size - std::min(size, limit);
  TROUPE_TRY(auto text, read_range(file, path, begin, size - begin));
  log_tail result{name, std::move(text), begin == 0};
  if (!result.whole) // begin with a whole line, if there is one
    if (auto end = result.text.find('\n'); end != std::string::npos)
      result.text.erase(0, end + 1);
  result.text = without_terminal_codes(result.text);
  if (keep_last_lines(result.text))
    result.whole = false;
  result.text = redacted_lines(result.text);
  return result;
}

void read_logs(const fs::path& run_path, run_facts& to) {
  auto folder = run_path / run_layout::logs;
  auto files = log_files(folder);
  if (files.size() > max_logs) {
    to.complaints.push_back(
      concat("The logs of ", files.size(), " ranks are in ", folder.string(),
             "; this page shows the first ", max_logs, "."));
    files.resize(max_logs);
  }
  auto limit = std::min(
    max_log_bytes, max_all_log_bytes / std::max<std::size_t>(files.size(), 1));
  for (auto& [rank, name] : files)
    if (auto tail = read_tail(run_path, name, limit))
      to.logs.push_back(std::move(*tail));
    else
      to.complaints.push_back(tail.error().message);
}

run_facts read_facts(const fs::path& run_path, std::size_t checkpoints) {
  run_facts result;
  result.name = run_path.filename().string();
  if (auto ok = read_description(run_path / run_layout::description, result);
      !ok)
    result.complaints.push_back(ok.error().message);
  if (auto state = load_run(run_path, checkpoints); !state)
    result.complaints.push_back(state.error().message);
  else if (*state)
    result.state = std::move(**state);
  else
    result.complaints.push_back(
      "There is no " + (run_path / run_layout::state).string() + ".");
  return result;
}

} // namespace

run_facts read_run_facts(const fs::path& run_path) {
  auto result = read_facts(run_path, max_checkpoint_rows);
  read_logs(run_path, result);
  return result;
}

run_facts read_main_facts(const fs::path& run_path) {
  return read_facts(run_path, 0);
}

} // namespace troupe::internal
