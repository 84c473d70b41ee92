#include <algorithm>
#include <vector>

#include "tools/troupe/runs.hpp"
#include "tools/troupe/sweeps.hpp"
#include "tools/troupe/verbs.hpp"
#include "troupe/callbacks/report_page/journal_digest.hpp"
#include "troupe/callbacks/status_text.hpp"
#include "troupe/callbacks/tracking/tracked_run.hpp"
#include "troupe/runtime/checkpoint/manifest.hpp"
#include "troupe/runtime/counted.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/store/journal_reader.hpp"
#include "troupe/runtime/store/retention.hpp"
#include "troupe/runtime/text.hpp"

// troupe show: all about one run, or one sweep.

namespace troupe::tool {

using namespace internal;

namespace {

struct shown_checkpoint {
  std::string name;
  std::uint64_t index = 0;
  std::uint64_t attempt = 0;
  std::optional<std::uint64_t> bytes; ///< Unknown if its manifest is damaged.
  std::size_t files = 0;
  std::optional<double> score;
  bool is_best = false;
};

struct shown_run {
  found_run run;
  metrics config;
  std::vector<journal_digest::attempt> attempts;
  std::vector<shown_checkpoint> checkpoints; ///< Oldest first.
};

/// Adds *problem*, unless `read_run` has met it, too.
void add_once(std::vector<error>& problems, error problem) {
  if (std::ranges::find(problems, problem) == problems.end())
    problems.push_back(std::move(problem));
}

/// Adds the journal's entries to *digest*, up to the first that cannot be read
/// though it is not damaged. Of reports, only their number is read.
expected<void> read_entries(const fs::path& journal, journal_digest& digest,
                            std::vector<error>& problems) {
  TROUPE_TRY(auto found, look_up(journal));
  if (!found.exists())
    return {};
  TROUPE_TRY(auto reader, journal_reader::open(journal, 0, 0));
  return reader.read_rest([&](const journal_entry& x) { digest.add(x); },
                          [&](error x) { add_once(problems, std::move(x)); });
}

std::vector<shown_checkpoint> checkpoints_of(found_run& run) {
  std::vector<shown_checkpoint> result;
  if (!run.state)
    return result;
  auto& all = run.state->checkpoints;
  const retention rule{run.state->retention};
  for (auto& x : all) {
    shown_checkpoint one{
      .name = x.data.name(),
      .index = x.index,
      .attempt = x.attempt,
      .bytes = {},
      .score = x.values.find_number(rule.config().checkpoint_score_attribute)};
    if (auto its = read_manifest(x.data.path()); its) {
      one.bytes = 0;
      for (auto& file : its->files)
        *one.bytes += file.size;
      one.files = its->files.size();
    } else {
      run.problems.push_back(its.error());
    }
    result.push_back(std::move(one));
  }
  if (!all.empty())
    result[rule.ranking(all).back()].is_best = true;
  return result;
}

shown_run look_at(const fs::path& path) {
  shown_run x{
    .run = read_run(path), .config = {}, .attempts = {}, .checkpoints = {}};
  if (x.run.description)
    x.config = config_values(x.run.description->config);
  journal_digest digest;
  auto& problems = x.run.problems;
  if (auto ok = read_entries(path / run_layout::journal, digest, problems); !ok)
    add_once(problems, std::move(ok.error()));
  x.attempts = std::move(digest.attempts);
  x.checkpoints = checkpoints_of(x.run);
  return x;
}

// -- as text

std::string pairs_text(const metrics& values) {
  std::vector<std::pair<std::string, cell>> pairs;
  for (auto& [name, value] : values)
    pairs.emplace_back(one_line(name), cell{to_string(value)});
  return tool::pairs_text(pairs);
}

std::string state_of(const found_run& run) {
  auto result = run.state_name();
  if (run.driver && run.presence != driver_presence::gone)
    result += " (" + to_string(*run.driver) + ')';
  return result;
}

fact_list facts_of(const found_run& run) {
  fact_list facts;
  facts.add("state", state_of(run), color_of(run.state_name()));
  if (run.state && run.state->error)
    facts.add("error", run.state->error->message, color::red);
  if (run.state && !run.state->stop_reason.empty())
    facts.add("ended early", run.state->stop_reason);
  facts.add("folder", run.path.string());
  if (run.description)
    facts.add("id", run.description->id);
  if (run.begun)
    facts.add("started", time_text(*run.begun));
  if (run.last_entry)
    facts.add("last entry", time_text(*run.last_entry));
  if (auto seconds = run.seconds())
    facts.add("duration", elapsed_text(*seconds));
  facts.add(
    "reports",
    counted(run.reports, "report")
      + (run.world_size > 0 ? " of " + counted(run.world_size, "rank") : ""));
  if (run.state) {
    facts.add("attempts", std::to_string(run.attempts()));
    facts.add("failures", concat(run.state->failures.ranks, " of ranks, ",
                                 run.state->failures.starts, " of starts"));
    if (auto damaged = run.state->rotten.size(); damaged > 0)
      facts.add("damaged", counted(damaged, "checkpoint"), color::red);
  }
  if (run.description) {
    auto& x = *run.description;
    facts.add("host", x.host);
    facts.add("user", x.user);
    facts.add("program", x.program);
    facts.add("troupe", x.troupe);
    facts.add("compiler", x.compiler);
  }
  return facts;
}

std::string text_of(const shown_run& x) {
  auto out = title_text(x.run.name) + tool::pairs_text(facts_of(x.run).pairs);
  if (!x.config.empty()) {
    out += '\n' + title_text("Config");
    out += pairs_text(x.config);
  }
  if (!x.attempts.empty()) {
    out += '\n' + title_text("Attempts");
    table rows{{{"ATTEMPT", true},
                {"BEGAN"},
                {"REPORTS", true},
                {"RESUMED FROM"},
                {"FAILURE"}}};
    for (auto& one : x.attempts)
      rows.add({{std::to_string(one.number)},
                {time_text(one.time)},
                {std::to_string(one.reports)},
                {one.resume.empty() ? "-" : one.resume},
                {one.failure.empty() ? "-" : one.failure,
                 one.failure.empty() ? color::none : color::red}});
    out += rows.text(2);
  }
  if (!x.checkpoints.empty()) {
    out += '\n' + title_text("Checkpoints");
    table rows{{{"NAME"},
                {"REPORT", true},
                {"ATTEMPT", true},
                {"FILES", true},
                {"SIZE", true},
                {"SCORE"}}};
    for (auto& one : x.checkpoints)
      rows.add({{one.name},
                {std::to_string(one.index)},
                {std::to_string(one.attempt)},
                {one.bytes ? std::to_string(one.files) : "-"},
                {one.bytes ? size_text(*one.bytes) : "damaged",
                 one.bytes ? color::none : color::red},
                {(one.score ? number_text(*one.score) : "-")
                   + (one.is_best ? " (best)" : ""),
                 one.is_best ? color::green : color::none}});
    out += rows.text(2);
  }
  if (!x.run.last_metrics.empty()) {
    out += '\n' + title_text("Last metrics of rank 0");
    out += pairs_text(x.run.last_metrics);
  }
  return out;
}

// -- as JSON

json_object json_of(const shown_run& x) {
  auto result = to_json(x.run);
  auto& description = x.run.description;
  auto text = [&](std::string run_description::*field) {
    return description ? json_object(utf8_text((*description).*field))
                       : json_object();
  };
  result["stop_reason"] =
    text_json(x.run.state ? x.run.state->stop_reason : "");
  result["host"] = text(&run_description::host);
  result["user"] = text(&run_description::user);
  result["program"] = text(&run_description::program);
  result["troupe"] = text(&run_description::troupe);
  result["compiler"] = text(&run_description::compiler);
  result["config"] = metrics_json(x.config);
  result["attempt_list"] = json_object::array();
  for (auto& one : x.attempts)
    result["attempt_list"].push_back({{"attempt", one.number},
                                      {"began", time_json(one.time)},
                                      {"reports", one.reports},
                                      {"resumed_from", text_json(one.resume)},
                                      {"failure", text_json(one.failure)}});
  result["checkpoint_list"] = json_object::array();
  for (auto& one : x.checkpoints)
    result["checkpoint_list"].push_back(
      {{"name", utf8_text(one.name)},
       {"report", one.index},
       {"attempt", one.attempt},
       {"files", one.files},
       {"bytes", one.bytes ? json_object(*one.bytes) : json_object()},
       {"score", one.score ? number_json(*one.score) : json_object()},
       {"best", one.is_best}});
  return result;
}

expected<int> show_sweep(const fs::path& path, bool json) {
  auto found = read_sweep_at(path);
  if (json)
    print_json(shown_json(found));
  else
    print(shown_text(found));
  for (auto& problem : found.problems)
    complain(problem.message);
  return found.problems.empty() ? done : failed;
}

expected<int> show(const run_arguments& x) {
  TROUPE_TRY(auto named, x.run_or_sweep());
  if (named.is_sweep)
    return show_sweep(named.path, x.json);
  auto found = look_at(named.path);
  if (x.json) {
    print_json(json_of(found));
  } else {
    print(text_of(found));
    for (auto& problem : found.run.problems)
      complain(problem.message);
  }
  return found.run.problems.empty() ? done : failed;
}

} // namespace

verb show_verb() {
  return {"show",
          "Shows one run: its config, attempts, failures, checkpoints and last "
          "metrics; or\none sweep with its space and its trials.",
          [](CLI::App& app) -> action {
            auto x = add_run_arguments(app);
            app.footer("Exit code 1 if a part of it could not be read.");
            return [x] { return show(*x); };
          }};
}

} // namespace troupe::tool
