#include "tools/troupe/runs.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

#include "tools/troupe/storage.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/checksum.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/store/journal_line.hpp"
#include "troupe/runtime/store/run_folder.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::tool {

using namespace internal;

namespace {

using time_point = found_run::time_point;

time_point time_of(std::int64_t us) {
  return time_point{std::chrono::duration_cast<time_point::duration>(
    std::chrono::microseconds{us})};
}

/// A missing file is not a problem here; its reader reports it.
template <class T>
std::optional<T> take(expected<T> from, found_run& to) {
  if (from)
    return std::move(*from);
  to.problems.push_back(std::move(from.error()));
  return std::nullopt;
}

/// That the run in *path* has no state, and what its next start does about it.
error missing_state(const fs::path& path) {
  auto text = "there is no " + (path / run_layout::state).string();
  auto next = held_folder::follow(path).and_then(refuse_foreign);
  if (next)
    text += "; the next start of the run rebuilds it";
  else if (next.error().code == ec::conflict)
    text += "; the next start refuses the folder: " + next.error().message;
  return {ec::corrupt, std::move(text)};
}

/// The last whole lines of a journal, up to the last report.
struct journal_end {
  std::optional<journaled_batch> batch;
  std::optional<time_point> first_time, last_time;
};

void look_back(std::string_view lines, const fs::path& path, journal_end& to) {
  while (!lines.empty() && !to.batch) {
    auto begin = lines.find_last_of('\n', lines.size() - 2);
    begin = begin == lines.npos || lines.size() < 2 ? 0 : begin + 1;
    auto line = lines.substr(begin);
    lines.remove_suffix(line.size());
    auto head = parse_line_head(line);
    if (!head || !has_valid_sum(line))
      continue;
    if (!to.last_time)
      to.last_time = time_of(head->time_us);
    if (!head->index)
      continue;
    if (auto entry = parse_line(line, path.string(), 1); entry && *entry)
      if (auto row = std::get_if<journaled_batch>(&**entry))
        to.batch = std::move(*row);
  }
}

// Backwards from the end, so that a long journal costs no more than a short
// one.
expected<journal_end> read_end(const fs::path& path) {
  TROUPE_TRY(auto file, open_file(path, O_RDONLY, "open"));
  struct stat info {};
  if (::fstat(file.get(), &info) != 0)
    return tl::unexpected{storage_error("read", path, errno)};
  auto size = static_cast<std::uint64_t>(info.st_size);
  journal_end result;
  TROUPE_TRY(auto head, read_range(file, path, 0, 64 * 1024));
  for (std::size_t at = 0, line = 0; line < 8; ++line) {
    auto end = head.find('\n', at);
    if (end == head.npos)
      break;
    auto text = std::string_view{head}.substr(at, end + 1 - at);
    at = end + 1;
    if (line == 0) // A journal of a newer format says so here.
      TROUPE_TRY_VOID(parse_line(text, path.string() + " line 1 (byte 0)", 1));
    if (auto x = parse_line_head(text); x && has_valid_sum(text)) {
      result.first_time = time_of(x->time_us);
      break;
    }
  }
  for (std::uint64_t chunk = 64 * 1024;; chunk *= 4) {
    auto begin = size - std::min(size, chunk);
    TROUPE_TRY(auto text, read_range(file, path, begin,
                                     static_cast<std::size_t>(size - begin)));
    auto lines = std::string_view{text};
    if (begin > 0)
      lines.remove_prefix(std::min(lines.find('\n'), lines.size() - 1) + 1);
    lines = lines.substr(0, lines.find_last_of('\n') + 1);
    result.last_time.reset();
    look_back(lines, path, result);
    if (result.batch || begin == 0)
      return result;
  }
}

} // namespace

driver_presence presence_of(const process_identity& x) {
  static const auto me = own_identity();
  if (x.boot != me.boot || x.host != me.host)
    return driver_presence::elsewhere;
  return is_alive(x) ? driver_presence::live : driver_presence::gone;
}

const char* name_of(driver_presence x) noexcept {
  switch (x) {
    case driver_presence::live:
      return "running";
    case driver_presence::elsewhere:
      return "elsewhere";
    case driver_presence::gone:
      break;
  }
  return "lost";
}

std::string found_run::state_name() const {
  auto of_driver = name_of(presence);
  if (state)
    return state->status == run_status_kind::running
             ? of_driver
             : std::string{to_string(state->status)};
  return problems.empty() ? of_driver : "unreadable";
}

std::optional<double> found_run::seconds() const {
  if (!begun)
    return std::nullopt;
  auto end = last_entry.value_or(*begun);
  if (state_name() == "running")
    end = std::max(end, std::chrono::system_clock::now());
  return std::chrono::duration<double>(end - *begun).count();
}

std::uint64_t found_run::attempts() const {
  return state ? state->next_attempt : 0;
}

found_run read_run(const fs::path& path) {
  found_run x;
  x.path = path;
  x.name = shown_name(path);
  auto claim = take(latest_claim(path), x).value_or(std::nullopt);
  if (claim) {
    x.driver = claim->driver;
    x.presence = presence_of(*x.driver);
  }
  // No metrics of checkpoints: those with a score are read all the same.
  if (auto state = take(load_run(path, 0), x); state && *state) {
    x.state = std::move(**state);
    // The end of the last driver is not that of the one that resumes the run.
    if (x.presence == driver_presence::live
        && claim->attempt >= x.state->next_attempt)
      x.state->status = run_status_kind::running;
  } else if (state && x.presence == driver_presence::gone) {
    x.problems.push_back(missing_state(path));
  }
  x.description = take(read_description(path), x);
  if (x.description)
    x.begun = parse_timestamp(x.description->begun);
  if (auto found = take(look_up(path / run_layout::journal), x); !found)
    return x;
  else if (!found->exists()) {
    if (x.state && x.state->next_report > 0)
      x.problems.push_back(
        {ec::corrupt, "there is no " + (path / run_layout::journal).string()});
    return x;
  }
  auto end = take(read_end(path / run_layout::journal), x);
  x.reports = x.state ? x.state->next_report : 0;
  if (!end)
    return x;
  if (end->first_time)
    x.begun = end->first_time;
  x.last_entry = end->last_time;
  if (end->batch) {
    x.reports = std::max(x.reports, end->batch->index + 1);
    x.world_size = end->batch->values.size();
    if (!end->batch->values.empty())
      x.last_metrics = std::move(end->batch->values.front());
  }
  return x;
}

bool has_ended(const found_run& run) {
  return run.presence == driver_presence::gone
         || (run.state && run.state->status != run_status_kind::running);
}

unique_fd open_driver(const found_run& run) {
  return run.presence == driver_presence::live ? open_pidfd(run.driver->pid)
                                               : unique_fd{};
}

expected<process_identity> ask_to_end(const fs::path& path, end_kind how) {
  auto run = read_run(path);
  if (has_ended(run))
    return refuse_without_driver("run", path, run.state_name());
  TROUPE_TRY(auto folder, held_folder::follow(path));
  TROUPE_TRY_VOID(send_end_request(folder, {*run.driver, how}));
  return *run.driver;
}

tl::unexpected<error> refuse_without_driver(std::string_view what,
                                            const fs::path& path,
                                            std::string_view state) {
  return failure(ec::conflict, concat("the ", what, ' ', path.string(),
                                      " has no driver to ask: it is ", state));
}

color color_of(const std::string& state) {
  if (state == "running")
    return color::cyan;
  if (state == "finished")
    return color::green;
  if (state == "errored" || state == "lost" || state == "unreadable")
    return color::red;
  return color::yellow;
}

json_object to_json(const error& x) {
  return {{"code", std::string{to_string(x.code)}},
          {"message", utf8_text(x.message)}};
}

json_object to_json(const std::vector<error>& all) {
  auto result = json_object::array();
  for (auto& x : all)
    result.push_back(to_json(x));
  return result;
}

json_object to_json(const process_identity& x) {
  return {{"pid", x.pid}, {"host", utf8_text(x.host)}};
}

json_object to_json(const found_run& x) {
  auto result = json_object::object();
  auto seconds = x.seconds();
  result["name"] = utf8_text(x.name);
  result["path"] = utf8_text(x.path.string());
  result["id"] = text_json(x.description ? x.description->id : "");
  result["state"] = x.state_name();
  result["reports"] = x.reports;
  result["ranks"] = x.world_size;
  result["attempts"] = x.attempts();
  result["restarts"] = x.attempts() - std::min<std::uint64_t>(x.attempts(), 1);
  result["failures"] = x.state ? x.state->failures.ranks : 0;
  result["checkpoints"] = x.state ? x.state->checkpoints.size() : 0;
  result["started"] = time_json(x.begun);
  result["last_entry"] = time_json(x.last_entry);
  result["seconds"] = seconds ? json_object(*seconds) : json_object();
  result["metrics"] = metrics_json(x.last_metrics);
  auto score = x.state ? x.state->retention.checkpoint_score_attribute : "";
  auto value = x.last_metrics.find_number(score);
  result["score_name"] = text_json(score);
  result["score"] = value ? number_json(*value) : json_object();
  result["error"] =
    text_json(x.state && x.state->error ? x.state->error->message : "");
  result["driver"] = x.driver && x.presence != driver_presence::gone
                       ? to_json(*x.driver)
                       : json_object();
  result["problems"] = to_json(x.problems);
  return result;
}

} // namespace troupe::tool
