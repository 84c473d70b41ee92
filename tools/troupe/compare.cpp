#include <algorithm>
#include <memory>
#include <vector>

#include "tools/troupe/runs.hpp"
#include "tools/troupe/storage.hpp"
#include "tools/troupe/sweeps.hpp"
#include "tools/troupe/verbs.hpp"
#include "troupe/callbacks/report_page/comparison.hpp"
#include "troupe/callbacks/report_page/page_data.hpp"
#include "troupe/runtime/text.hpp"

// troupe compare: one page for several runs, or for a sweep.

namespace troupe::tool {

using namespace internal;

namespace {

struct compare_arguments {
  std::vector<std::string> runs;
  std::string storage;
  std::string output = "compare.html";
  bool json = false;
};

expected<std::vector<fs::path>> paths_of(const compare_arguments& x) {
  TROUPE_TRY(auto folder, storage_folder(x.storage));
  std::vector<fs::path> result;
  for (auto& run : x.runs) {
    TROUPE_TRY(auto path, find_run(run, folder));
    if (std::ranges::count(result, path) > 0)
      return failure(ec::invalid_argument, path.string() + " is given twice");
    result.push_back(std::move(path));
  }
  return result;
}

json_object best_json(const comparison::run& x) {
  auto best = best_of(x);
  if (!best)
    return {};
  return {{"metric", utf8_text(best->metric)},
          {"order", std::string{to_string(best->order)}},
          {"value", number_json(best->value)}};
}

json_object settings_json(const std::vector<comparison::setting>& all) {
  auto result = json_object::array();
  for (auto& x : all) {
    auto values = json_object::array();
    for (auto& value : x.values)
      values.push_back(value ? json_object(utf8_text(*value)) : json_object());
    result.push_back({{"name", utf8_text(x.name)},
                      {"differs", x.differs},
                      {"values", std::move(values)}});
  }
  return result;
}

/// Of each metric that a run reported or logged, one entry a run.
json_object values_json(const comparison& x,
                        journal_digest::curve_map journal_digest::*field) {
  auto result = json_object::object();
  for (std::size_t i = 0; i < x.runs.size(); ++i)
    for (auto& [name, data] : x.runs[i].digest().*field) {
      auto& values = result[utf8_text(name)];
      if (values.is_null())
        values = json_object::array_t(x.runs.size());
      values[i] = {{"last", number_json(data.last().mean)},
                   {"lowest", number_json(data.total().min)},
                   {"highest", number_json(data.total().max)}};
    }
  return result;
}

json_object json_of(const comparison& x) {
  auto result = json_object::object();
  result["runs"] = json_object::array();
  for (auto& run : x.runs) {
    auto one = to_json(read_run(run.path));
    one["best"] = best_json(run);
    result["runs"].push_back(std::move(one));
  }
  result["config"] = settings_json(x.config);
  result["environment"] = settings_json(x.environment);
  result["metrics"] = values_json(x, &journal_digest::reported);
  result["logged"] = values_json(x, &journal_digest::logged);
  return result;
}

expected<int> compare_trials(const fs::path& path, const compare_arguments& x) {
  auto found = read_sweep_at(path);
  std::optional<json_object> details;
  if (x.json)
    details.emplace(shown_json(found));
  TROUPE_TRY_VOID(
    put_page(sweep_page(facts_of(found)), x.output, std::move(details)));
  for (auto& problem : found.problems)
    complain(found.name + ": " + problem.message);
  return found.problems.empty() ? done : failed;
}

/// The folder of the only argument, if that is a sweep.
expected<std::optional<fs::path>> only_sweep(const compare_arguments& x) {
  if (x.runs.size() != 1)
    return std::nullopt;
  run_arguments one{x.runs.front(), x.storage, x.json};
  TROUPE_TRY(auto named, one.run_or_sweep());
  if (named.is_sweep)
    return std::optional{std::move(named.path)};
  return failure(ec::invalid_argument,
                 named.path.string()
                   + " is one run: name another to compare it with, or a "
                     "sweep");
}

expected<int> compare(const compare_arguments& x) {
  TROUPE_TRY(auto sweep, only_sweep(x));
  if (sweep)
    return compare_trials(*sweep, x);
  TROUPE_TRY(auto paths, paths_of(x));
  TROUPE_TRY(auto found, compare_runs(paths));
  std::optional<json_object> details;
  if (x.json)
    details.emplace(json_of(found));
  TROUPE_TRY_VOID(
    put_page(comparison_page(found), x.output, std::move(details)));
  auto code = done;
  for (auto& run : found.runs)
    for (auto& complaint : complaints_of(run.facts, run.digest())) {
      complain(run.label + ": " + complaint);
      code = failed;
    }
  return code;
}

} // namespace

verb compare_verb() {
  return {"compare",
          "Makes one page for several runs: the curves of each metric in one "
          "chart, what\ntheir configs differ in, durations and best values; "
          "or for one sweep: its trials\nover parallel axes and in a table.",
          [](CLI::App& app) -> action {
            auto x = std::make_shared<compare_arguments>();
            app
              .add_option("RUN", x->runs,
                          concat("a sweep, or 2 to ", max_compared_runs,
                                 " runs: names, folders, or the first\n6 "
                                 "digits of ids or more"))
              ->option_text(" ")
              ->required()
              ->expected(1, int{max_compared_runs})
              ->check(not_empty);
            add_storage(app, x->storage);
            add_json(app, x->json);
            app
              .add_option("-o,--output", x->output,
                          "where to put the page (default: compare.html in "
                          "the\ncurrent folder); - prints it")
              ->option_text("FILE")
              ->check(not_empty);
            app.footer("Exit code 1 if a part of a run could not be read; the "
                       "page says what is missing.");
            return [x] { return compare(*x); };
          }};
}

} // namespace troupe::tool
