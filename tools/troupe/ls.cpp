#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "tools/troupe/runs.hpp"
#include "tools/troupe/storage.hpp"
#include "tools/troupe/sweeps.hpp"
#include "tools/troupe/verbs.hpp"
#include "troupe/callbacks/status_text.hpp"
#include "troupe/runtime/near_names.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/store/journal_reader.hpp"
#include "troupe/runtime/text.hpp"

// troupe ls: the runs and sweeps of a storage folder.

namespace troupe::tool {

using namespace internal;

namespace {

struct ls_arguments {
  std::string folder; ///< Of runs, or a sweep.
  std::string storage;
  std::string metric;
  bool json = false;
  bool names = false;
};

/// "loss=0.25" of the run's last report.
std::string score_text(const found_run& x, const std::string& metric) {
  auto name = !metric.empty() ? metric
              : x.state       ? x.state->retention.checkpoint_score_attribute
                              : "";
  auto value = x.last_metrics.find_number(name);
  return value ? name + '=' + number_text(*value) : "-";
}

std::string table_of(const std::vector<found_run>& runs,
                     const ls_arguments& x) {
  table out{{{"NAME"},
             {"STATE"},
             {"REPORTS", true},
             {"RESTARTS", true},
             {"STARTED"},
             {"DURATION", true},
             {"SCORE"},
             {"ID"}}};
  for (auto& run : runs) {
    auto state = run.state_name();
    auto attempts = run.attempts();
    auto seconds = run.seconds();
    out.add({{run.name},
             {state, color_of(state)},
             {std::to_string(run.reports)},
             {std::to_string(attempts > 0 ? attempts - 1 : 0)},
             {run.begun ? time_text(*run.begun) : "-"},
             {seconds ? elapsed_text(*seconds) : "-"},
             {score_text(run, x.metric)},
             {run.description ? run.description->id.substr(0, 8) : "-"}});
  }
  return out.text();
}

std::string table_of(const std::vector<found_sweep>& sweeps) {
  table out{{{"SWEEP"},
             {"STATE"},
             {"TRIALS"},
             {"STARTED"},
             {"DURATION", true},
             {"BEST"},
             {"ID"}}};
  for (auto& x : sweeps) {
    auto state = x.state_name();
    auto seconds = x.seconds();
    auto begun = x.begun();
    auto best = best_text(x);
    out.add({{x.name},
             {state, color_of(state)},
             {trials_text(x)},
             {begun ? time_text(*begun) : "-"},
             {seconds ? elapsed_text(*seconds) : "-"},
             {best.empty() ? "-" : best},
             {x.content ? x.content->description.id.substr(0, 8) : "-"}});
  }
  return out.text();
}

void complain_about(const std::vector<found_run>& runs,
                    const std::vector<found_sweep>& sweeps,
                    const storage_content& storage) {
  for (auto& run : runs)
    for (auto& problem : run.problems)
      complain(run.name + ": " + problem.message);
  for (auto& sweep : sweeps)
    for (auto& problem : sweep.problems)
      complain(sweep.name + ": " + problem.message);
  for (auto& x : storage.strange)
    complain(shown_name(x.path) + ": " + x.reason.message);
}

/// Whether *x* may be a run, for all that can be read.
bool is_unreadable(const strange_folder& x) {
  return x.reason.code != ec::invalid_argument;
}

json_object json_of(const std::vector<found_run>& runs,
                    const std::vector<found_sweep>& sweeps,
                    const storage_content& storage) {
  auto result = json_object::object();
  result["storage"] = utf8_text(storage.path.string());
  result["runs"] = json_object::array();
  for (auto& run : runs)
    result["runs"].push_back(to_json(run));
  result["sweeps"] = json_object::array();
  for (auto& sweep : sweeps)
    result["sweeps"].push_back(to_json(sweep));
  result["strange"] = json_object::array();
  for (auto& x : storage.strange) {
    auto entry = to_json(x.reason);
    entry["path"] = utf8_text(x.path.string());
    result["strange"].push_back(std::move(entry));
  }
  return result;
}

/// Adds the names of all metrics that a run has reported. What cannot be read
/// is a problem of the run, and named as such.
void add_metrics_of(const found_run& run, std::set<std::string>& to) {
  auto reader = journal_reader::open(run.path / run_layout::journal);
  while (reader) {
    auto entry = reader->next();
    if (entry ? !*entry : entry.error().code != ec::corrupt)
      return;
    auto row = entry ? std::get_if<journaled_batch>(&**entry) : nullptr;
    if (row)
      for (auto& values : row->values)
        for (auto& [name, value] : values)
          to.insert(name);
  }
}

/// Refuses a *metric* that was asked for if runs have reported others only.
/// Before the first report no name is known to be wrong.
expected<void> check_metric(const std::string& metric,
                            const std::vector<found_run>& runs) {
  auto has_it = [&](const found_run& x) {
    return x.last_metrics.contains(metric);
  };
  if (metric.empty() || std::ranges::any_of(runs, has_it))
    return {};
  // Not each report has all metrics.
  std::set<std::string> known;
  for (auto& run : runs)
    add_metrics_of(run, known);
  if (known.empty() || known.contains(metric))
    return {};
  return failure(ec::invalid_argument,
                 "no run has a metric '" + metric + '\''
                   + near_names(metric, {known.begin(), known.end()}));
}

std::string names_of(const storage_content& storage) {
  std::string result;
  for (auto* paths : {&storage.sweeps, &storage.runs})
    for (auto& path : *paths)
      result += one_line(path.filename().string()) + '\n';
  return result;
}

std::string tables_of(const std::vector<found_run>& runs,
                      const std::vector<found_sweep>& sweeps,
                      const storage_content& storage, const ls_arguments& x) {
  if (runs.empty() && sweeps.empty()
      && std::ranges::any_of(storage.strange, is_unreadable))
    return {}; // It cannot be known; the complaints say why.
  if (runs.empty() && sweeps.empty())
    return "no runs in " + one_line(storage.path.string()) + '\n';
  auto result = runs.empty() ? "" : table_of(runs, x);
  if (!sweeps.empty())
    result += (result.empty() ? "" : "\n") + table_of(sweeps);
  return result;
}

expected<int> ls(const ls_arguments& x) {
  TROUPE_TRY(auto folder, folder_of_runs(x.folder, x.storage));
  TROUPE_TRY(auto storage, look_into(folder));
  if (x.names) {
    print(names_of(storage));
    return done;
  }
  std::vector<found_run> runs;
  for (auto& path : storage.runs)
    runs.push_back(read_run(path));
  TROUPE_TRY_VOID(check_metric(x.metric, runs));
  std::ranges::stable_sort(runs, {}, [](const found_run& run) {
    return run.begun.value_or(found_run::time_point{});
  });
  std::vector<found_sweep> sweeps;
  for (auto& path : storage.sweeps)
    sweeps.push_back(read_sweep_at(path));
  std::ranges::stable_sort(sweeps, {}, [](const found_sweep& sweep) {
    return sweep.begun().value_or(found_sweep::time_point{});
  });
  if (x.json) {
    print_json(json_of(runs, sweeps, storage));
  } else {
    print(tables_of(runs, sweeps, storage, x));
    complain_about(runs, sweeps, storage);
  }
  auto has_problems = [](const found_run& x) { return !x.problems.empty(); };
  // A damaged line without which the others fit is named only: it stays in the
  // journal for good, also once the sweep has continued without it.
  auto has_no_content = [](const found_sweep& x) { return !x.content; };
  return std::ranges::any_of(storage.strange, is_unreadable)
             || std::ranges::any_of(runs, has_problems)
             || std::ranges::any_of(sweeps, has_no_content)
           ? failed
           : done;
}

} // namespace

verb ls_verb() {
  return {
    "ls",
    "Lists the runs in a storage folder, the oldest first, then its sweeps. "
    "Of a sweep,\nlists the trials.",
    [](CLI::App& app) -> action {
      auto x = std::make_shared<ls_arguments>();
      add_folder_of_runs(app, x->folder);
      add_storage(app, x->storage);
      app
        .add_option("-m,--metric", x->metric,
                    "show this metric of rank 0's last report (default:\n"
                    "the one that scores checkpoints)")
        ->option_text("NAME")
        ->check(not_empty);
      app.add_flag("--names", x->names, "print names only, one a line");
      add_json(app, x->json);
      app.footer(
        "States: running; finished, errored, aborted, preempted; lost: its "
        "driver\n"
        "died, the next start of that name resumes it; elsewhere: its driver "
        "is, or\n"
        "was, on another host; unreadable: its state cannot be read.\n"
        "Exit code 1 if a run could not be read completely, or a sweep not at "
        "all.");
      return [x] { return ls(*x); };
    }};
}

} // namespace troupe::tool
