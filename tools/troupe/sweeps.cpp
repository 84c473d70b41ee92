#include "tools/troupe/sweeps.hpp"

#include <algorithm>

#include "tools/troupe/storage.hpp"
#include "troupe/callbacks/status_text.hpp"
#include "troupe/runtime/near_names.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/held_folder.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::tool {

using namespace internal;

namespace {

constexpr auto running = run_status_kind::running;

const sweep_start* start_of(const found_sweep& x) {
  return x.content && x.content->history.start ? &*x.content->history.start
                                               : nullptr;
}

const sweep_end* end_of(const found_sweep& x) {
  return x.content && x.content->history.end ? &*x.content->history.end
                                             : nullptr;
}

std::optional<std::size_t> planned_of(const found_sweep& x) {
  return x.content ? x.content->history.planned() : std::nullopt;
}

/// The ranges of a space, which is JSON, by the names of its params.
json_object space_of(const found_sweep& x) {
  auto result =
    json_object::parse(x.content->description.space, nullptr, false);
  return result.is_array() ? result : json_object::array();
}

/// "0.0001 to 1, log", "constant, linear"
std::string range_text(const json_object& x) {
  auto text = [&](const char* name) {
    return x.contains(name) ? x[name].dump() : std::string{};
  };
  std::string result;
  if (x.contains("choice") && x["choice"].is_array()) {
    for (auto& value : x["choice"])
      result += (result.empty() ? "" : ", ")
                + (value.is_string() ? value.get<std::string>() : value.dump());
    return result;
  }
  result = x.contains("low")
             ? concat(text("low"), " to ", text("high"))
             : concat("integers ", text("first"), " to ", text("last"));
  return x.contains("scale") ? result + ", log" : result;
}

/// A trial that is under way as its run says.
trial refreshed(trial x, const found_sweep& of) {
  if (x.status != running)
    return x;
  auto run = read_run(of.path / x.name);
  x.reports = run.reports;
  x.metrics = run.last_metrics;
  x.seconds = run.seconds().value_or(0);
  return x;
}

json_object trial_json(const trial& x, const found_sweep& of) {
  auto result = json_object::object();
  result["name"] = x.name;
  result["state"] = state_name(x, of);
  result["params"] = metrics_json(x.params);
  result["score"] = x.score ? number_json(*x.score) : json_object();
  result["metrics"] = metrics_json(x.metrics);
  result["reports"] = x.reports;
  result["seconds"] = x.seconds;
  result["reason"] = text_json(x.reason);
  return result;
}

std::string facts_text(const found_sweep& x) {
  fact_list facts;
  auto state = x.state_name();
  auto start = start_of(x);
  facts.add("state",
            start && x.presence != driver_presence::gone && state != "finished"
              ? state + " (" + to_string(start->driver) + ')'
              : state,
            color_of(state));
  if (auto end = end_of(x))
    facts.add("reason", end->reason, color::red);
  facts.add("folder", x.path.string());
  facts.add("id", x.content->description.id);
  if (auto begun = x.begun())
    facts.add("started", time_text(*begun));
  if (auto seconds = x.seconds())
    facts.add("duration", elapsed_text(*seconds));
  facts.add("searcher", x.content->description.searcher);
  if (start)
    facts.add("metric",
              start->metric
                + (start->order == score_order::max ? ", higher is better"
                                                    : ", lower is better"));
  facts.add("trials", trials_text(x));
  facts.add("best", best_text(x), color::green);
  return pairs_text(facts.pairs);
}

} // namespace

std::string found_sweep::state_name() const {
  if (!content)
    return "unreadable";
  if (auto end = end_of(*this))
    return std::string{to_string(end->status)};
  return name_of(presence);
}

const std::vector<trial>& found_sweep::trials() const {
  static const std::vector<trial> none;
  return content ? content->history.trials : none;
}

found_sweep::counts found_sweep::count() const {
  counts result;
  auto runs = state_name() == "running" || state_name() == "elsewhere";
  for (auto& x : trials())
    ++(x.status == run_status_kind::finished  ? result.finished
       : x.status == run_status_kind::errored ? result.failed
       : x.status == running && runs          ? result.running
                                              : result.others);
  return result;
}

const trial* found_sweep::best() const {
  return content ? best_of(content->history.trials, content->history.order())
                 : nullptr;
}

std::optional<found_sweep::time_point> found_sweep::begun() const {
  return content ? parse_timestamp(content->description.begun) : std::nullopt;
}

std::optional<double> found_sweep::seconds() const {
  auto start = start_of(*this);
  auto first = start ? parse_timestamp(start->time) : std::nullopt;
  if (!first)
    return std::nullopt;
  auto end = end_of(*this);
  auto last = end ? parse_timestamp(end->time)
              : presence == driver_presence::live
                ? std::chrono::system_clock::now()
                : std::optional<time_point>{};
  if (!last)
    return std::nullopt;
  return std::max(0.0, std::chrono::duration<double>(*last - *first).count());
}

found_sweep read_sweep_at(const fs::path& path) {
  found_sweep result;
  result.path = path;
  result.name = path.filename().string();
  auto content = read_sweep(path);
  if (!content) {
    result.problems.push_back(std::move(content.error()));
    return result;
  }
  result.content = std::move(*content);
  result.problems = result.content->history.damaged;
  if (auto start = start_of(result); start && !end_of(result))
    result.presence = presence_of(start->driver);
  return result;
}

expected<std::optional<fs::path>> find_sweep(const std::string& given,
                                             const fs::path& storage) {
  TROUPE_TRY(auto paths, paths_named(given, storage));
  for (auto& path : paths) {
    TROUPE_TRY(auto there, look_up(path));
    if (!there.exists())
      continue;
    TROUPE_TRY(auto run, is_run(path));
    if (run)
      return std::nullopt;
    TROUPE_TRY(auto found, is_sweep(path));
    if (found)
      return std::optional{path};
  }
  if (!is_id(given))
    return std::nullopt;
  auto among = look_into(storage);
  if (!among)
    return std::nullopt;
  return find_id(given, *among).map([](const std::optional<found_id>& x) {
    return x && x->is_sweep ? std::optional{x->path} : std::nullopt;
  });
}

expected<fs::path> folder_of_runs(const std::string& given,
                                  const std::string& storage) {
  TROUPE_TRY(auto among, storage_folder(storage));
  if (given.empty())
    return among;
  // A folder that is there comes before a sweep of that name elsewhere.
  TROUPE_TRY(auto folder, storage_folder(given));
  TROUPE_TRY(auto found, look_up(folder));
  if (found.exists())
    return folder;
  TROUPE_TRY(auto sweep, find_sweep(given, among));
  if (sweep)
    return *sweep;
  if (given.find('/') != given.npos)
    return folder;
  std::vector<std::string> names;
  if (auto content = look_into(among))
    for (auto& path : content->sweeps)
      names.push_back(path.filename().string());
  return failure(ec::invalid_argument,
                 concat("there is no folder ", folder.string(),
                        ", and no sweep ", given, " in ", among.string(),
                        did_you_mean(given, {names.begin(), names.end()})));
}

bool has_ended(const found_sweep& x) {
  return x.presence == driver_presence::gone || end_of(x);
}

unique_fd open_driver(const found_sweep& x) {
  return x.presence == driver_presence::live
           ? open_pidfd(x.content->history.start->driver.pid)
           : unique_fd{};
}

expected<process_identity> ask_sweep_to_end(const fs::path& path,
                                            end_kind how) {
  if (how == end_kind::finish)
    return failure(ec::invalid_argument,
                   path.string()
                     + " is a sweep, which can be resumed until it has made "
                       "all its trials; finish one of these");
  auto sweep = read_sweep_at(path);
  auto start = start_of(sweep);
  if (!start || has_ended(sweep))
    return refuse_without_driver("sweep", path, sweep.state_name());
  TROUPE_TRY(auto folder, held_folder::follow(path));
  TROUPE_TRY_VOID(send_end_request(folder, {start->driver, how}));
  return start->driver;
}

std::string state_name(const trial& x, const found_sweep& of) {
  if (x.status != running)
    return std::string{to_string(x.status)};
  auto state = of.state_name();
  return state == "running" || state == "elsewhere" ? state : "unfinished";
}

std::string trials_text(const found_sweep& x) {
  auto counts = x.count();
  auto result = std::to_string(counts.finished);
  if (auto planned = planned_of(x))
    result += concat(" of ", *planned);
  result += " finished";
  if (counts.failed > 0)
    result += concat(", ", counts.failed, " failed");
  if (counts.running > 0)
    result += concat(", ", counts.running, " running");
  if (counts.others > 0)
    result += concat(", ", counts.others, " stopped");
  return result;
}

std::string best_text(const found_sweep& x) {
  auto best = x.best();
  return best ? concat(x.content->history.metric(), '=',
                       number_text(*best->score), " (", best->name, ')')
              : std::string{};
}

sweep_facts facts_of(const found_sweep& x) {
  sweep_facts result;
  result.name = x.name;
  result.status = x.state_name();
  for (auto& problem : x.problems)
    result.complaints.push_back(problem.message);
  if (x.content)
    result.content = *x.content;
  for (auto& one : result.content.history.trials)
    one = refreshed(std::move(one), x);
  return result;
}

json_object to_json(const found_sweep& x) {
  auto result = json_object::object();
  auto start = start_of(x);
  auto end = end_of(x);
  auto counts = x.count();
  auto best = x.best();
  auto seconds = x.seconds();
  result["name"] = utf8_text(x.name);
  result["path"] = utf8_text(x.path.string());
  result["id"] = text_json(x.content ? x.content->description.id : "");
  result["state"] = x.state_name();
  result["reason"] = text_json(end ? end->reason : "");
  result["started"] = time_json(x.begun());
  result["seconds"] = seconds ? json_object(*seconds) : json_object();
  result["metric"] = text_json(start ? start->metric : "");
  result["order"] =
    std::string{to_string(start ? start->order : score_order::min)};
  auto planned = planned_of(x);
  result["planned"] = planned ? json_object(*planned) : json_object();
  result["trials"] = {{"running", counts.running},
                      {"finished", counts.finished},
                      {"failed", counts.failed},
                      {"stopped", counts.others}};
  result["best"] = best ? json_object{{"trial", best->name},
                                      {"score", number_json(*best->score)},
                                      {"params", metrics_json(best->params)}}
                        : json_object();
  result["driver"] = start && x.presence != driver_presence::gone
                       ? to_json(start->driver)
                       : json_object();
  result["problems"] = to_json(x.problems);
  return result;
}

std::string shown_text(const found_sweep& x) {
  auto out = title_text(x.name);
  if (!x.content)
    return out;
  out += facts_text(x);
  out += '\n' + title_text("Space");
  std::vector<std::pair<std::string, cell>> ranges;
  for (auto& param : space_of(x))
    ranges.emplace_back(one_line(param.value("name", "")),
                        cell{range_text(param)});
  out += pairs_text(ranges);
  if (x.trials().empty())
    return out;
  out += '\n' + title_text("Trials");
  auto metric = x.content->history.metric();
  std::vector<column> columns{
    {"NAME"}, {"STATE"}, {"REPORTS", true}, {"DURATION", true}, {metric, true}};
  for (auto& [name, value] : x.trials().front().params)
    columns.push_back({name, value.is_number()});
  columns.push_back({"REASON"});
  table rows{std::move(columns)};
  for (auto& given : x.trials()) {
    auto one = refreshed(given, x);
    auto state = state_name(one, x);
    auto value = one.metrics.find(metric);
    std::vector<cell> row{{one.name},
                          {state, color_of(state)},
                          {std::to_string(one.reports)},
                          {elapsed_text(one.seconds)},
                          {value ? to_string(*value) : "-",
                           x.best() == &given ? color::green : color::none}};
    for (auto& [name, of_first] : x.trials().front().params) {
      auto param = one.params.find(name);
      row.push_back({param ? to_string(*param) : "-"});
    }
    row.push_back({one.reason});
    rows.add(std::move(row));
  }
  return out + rows.text(2);
}

json_object shown_json(const found_sweep& x) {
  auto result = to_json(x);
  if (!x.content)
    return result;
  result["searcher"] = utf8_text(x.content->description.searcher);
  result["space"] = space_of(x);
  result["trial_list"] = json_object::array();
  for (auto& one : x.trials())
    result["trial_list"].push_back(trial_json(refreshed(one, x), x));
  return result;
}

} // namespace troupe::tool
