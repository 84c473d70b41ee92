#include <algorithm>
#include <memory>
#include <vector>

#include "tools/troupe/runs.hpp"
#include "tools/troupe/storage.hpp"
#include "tools/troupe/sweeps.hpp"
#include "tools/troupe/verbs.hpp"
#include "troupe/runtime/checkpoint/manifest.hpp"
#include "troupe/runtime/counted.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/store/journal_reader.hpp"
#include "troupe/runtime/store/saved_run.hpp"
#include "troupe/runtime/text.hpp"

// troupe verify: compares all files of runs with their checksums.

namespace troupe::tool {

using namespace internal;

namespace {

struct verify_arguments {
  std::string what;
  std::string storage;
  bool json = false;
};

struct verified_run {
  std::string name;
  fs::path path;
  std::uint64_t checkpoints = 0;
  std::uint64_t files = 0;
  std::uint64_t bytes = 0; ///< Of the files of checkpoints and values.
  std::vector<error> bad;  ///< Each names its file.
};

/// What is wrong with a journal whose report *index* comes as number
/// *expected*; empty: nothing.
std::string fault_in_order(std::uint64_t index, std::uint64_t expected) {
  if (index == expected)
    return {};
  if (index < expected)
    return concat("report ", index, " comes again after report ", expected - 1);
  return concat(index - expected == 1 ? "report " : "reports ", expected,
                index - expected == 1 ? "" : concat(" to ", index - 1),
                index - expected == 1 ? " is missing" : " are missing");
}

/// Checks each line, and that no report is missing of those that the run's
/// *state* knows. If the run has not finished, its next start takes the last
/// ones from their checkpoints: a killed driver may have stored one of those,
/// but not yet its line.
void check_journal(const fs::path& journal, const saved_run& state,
                   verified_run& to) {
  auto found = look_up(journal);
  if (found && !found->exists()) {
    to.bad.push_back({ec::corrupt, "there is no " + journal.string()});
    return;
  }
  auto reader =
    found ? journal_reader::open(journal, 0, 0) : tl::unexpected{found.error()};
  if (!reader) {
    to.bad.push_back(reader.error());
    return;
  }
  ++to.files;
  std::uint64_t next = 0;
  auto note = [&](const std::string& fault) {
    if (!fault.empty())
      to.bad.push_back({ec::corrupt, concat(journal.string(), ": ", fault)});
  };
  auto is_empty = true;
  auto add = [&](const journal_entry& x) {
    is_empty = false;
    if (auto batch = std::get_if<journaled_batch>(&x)) {
      note(fault_in_order(batch->index, next));
      next = batch->index + 1;
    }
  };
  auto read = reader->read_rest(add, [&](error x) {
    is_empty = false;
    to.bad.push_back(std::move(x));
  });
  if (!read) {
    to.bad.push_back(read.error());
    return;
  }
  if (state.status != run_status_kind::finished && !is_empty)
    for (auto& x : state.checkpoints)
      if (x.index >= next) {
        note(fault_in_order(x.index, next));
        next = x.index + 1;
      }
  if (next < state.next_report)
    note(fault_in_order(state.next_report, next));
}

void check_checkpoint(const fs::path& folder, verified_run& to) {
  auto its = read_manifest(folder);
  if (!its) {
    to.bad.push_back(its.error());
    return;
  }
  ++to.checkpoints;
  ++to.files;
  // One at a time, so that each bad file is named.
  auto one = *its;
  for (auto& file : its->files) {
    one.files = {file};
    if (auto ok = verify_files(folder, one); !ok)
      to.bad.push_back(ok.error());
    ++to.files;
    to.bytes += file.size;
  }
}

/// Compares what the loops returned with its manifests; values that an earlier
/// version stored have none.
void check_return_values(const fs::path& run, verified_run& to) {
  auto all = files_below(run / run_layout::return_values);
  if (!all)
    return; // The run has none, or a live one has dropped them.
  for (auto& path : *all) {
    if (!path.string().ends_with(run_layout::value_manifest))
      continue;
    auto ok = read_file(path, max_manifest_bytes)
                .and_then([&](const std::string& text) {
                  return manifest_from_json(text, path);
                })
                .and_then([&](const manifest& x) {
                  for (auto& file : x.files)
                    to.bytes += file.size;
                  return verify_files(path.parent_path(), x);
                });
    to.files += 2;
    if (auto there = look_up(path); !ok && there && there->exists())
      to.bad.push_back(ok.error());
  }
}

/// All folders of checkpoints, for a run whose state is lost.
expected<std::vector<std::string>> all_checkpoint_names(const fs::path& run) {
  TROUPE_TRY(auto found, look_up(run / run_layout::checkpoints));
  if (!found.exists())
    return std::vector<std::string>{};
  TROUPE_TRY(auto folder, held_folder::follow(run / run_layout::checkpoints));
  return folder.names().map([](std::vector<std::string> names) {
    std::erase_if(names,
                  [](const std::string& x) { return x.starts_with('.'); });
    return names;
  });
}

bool still_has(const fs::path& run, const std::string& checkpoint) {
  auto state = load_run(run, 0);
  return !state || !*state
         || std::ranges::any_of((*state)->checkpoints,
                                [&](const kept_checkpoint& x) {
                                  return x.data.name() == checkpoint;
                                });
}

verified_run verify_run(const fs::path& path) {
  verified_run x{.name = shown_name(path), .path = path, .bad = {}};
  if (auto ok = read_description(path); !ok)
    x.bad.push_back(ok.error());
  auto state = load_run(path, 0);
  std::vector<std::string> names;
  if (state && *state) {
    for (auto& one : (*state)->checkpoints)
      names.push_back(one.data.name());
  } else {
    x.bad.push_back(
      state ? error{ec::corrupt,
                    "there is no " + (path / run_layout::state).string()}
            : state.error());
    if (auto all = all_checkpoint_names(path))
      names = std::move(*all);
    else
      x.bad.push_back(all.error());
  }
  x.files += 2;
  check_journal(path / run_layout::journal,
                state && *state ? **state : saved_run{}, x);
  for (auto& name : names) {
    auto before = x;
    check_checkpoint(path / run_layout::checkpoints / name, x);
    // A live run drops old checkpoints meanwhile.
    if (x.bad.size() > before.bad.size() && !still_has(path, name))
      x = std::move(before);
  }
  check_return_values(path, x);
  return x;
}

/// Adds the trials of *sweep*, whose own files are read for their checksums.
void add_trials(const fs::path& sweep, std::vector<fs::path>& runs,
                std::vector<strange_folder>& strange) {
  auto whole = read_sweep(sweep);
  if (!whole)
    strange.push_back({sweep, whole.error()});
  else
    for (auto& x : whole->history.damaged)
      strange.push_back({sweep, x});
  auto content = look_into(sweep);
  if (!content) {
    strange.push_back({sweep, content.error()});
    return;
  }
  runs.insert(runs.end(), content->runs.begin(), content->runs.end());
  strange.insert(strange.end(), content->strange.begin(),
                 content->strange.end());
}

/// The runs in the folder *storage*, and those of its sweeps.
expected<std::vector<fs::path>> all_runs(const fs::path& storage,
                                         std::vector<strange_folder>& strange) {
  TROUPE_TRY(auto content, look_into(storage));
  strange = std::move(content.strange);
  for (auto& sweep : content.sweeps)
    add_trials(sweep, content.runs, strange);
  return std::move(content.runs);
}

/// What *name* is: the trials of a sweep, a run, or all runs in a folder.
expected<std::vector<fs::path>>
runs_named(const std::string& name, const fs::path& storage,
           std::vector<strange_folder>& strange) {
  TROUPE_TRY(auto sweep, find_sweep(name, storage));
  if (sweep) {
    std::vector<fs::path> trials;
    add_trials(*sweep, trials, strange);
    return trials;
  }
  auto run = find_run(name, storage);
  if (run)
    return std::vector{*run};
  if (run.error().code != ec::invalid_argument)
    return tl::unexpected{run.error()};
  TROUPE_TRY(auto folder, storage_folder(name));
  TROUPE_TRY(auto there, look_up(folder));
  if (!there.exists())
    return tl::unexpected{run.error()};
  return all_runs(folder, strange);
}

json_object json_of(const verified_run& x) {
  return {{"name", utf8_text(x.name)}, {"path", utf8_text(x.path.string())},
          {"whole", x.bad.empty()},    {"checkpoints", x.checkpoints},
          {"files", x.files},          {"bytes", x.bytes},
          {"bad", to_json(x.bad)}};
}

std::string text_of(const verified_run& x) {
  auto out = concat(one_line(x.name), ": ",
                    painted(x.bad.empty() ? "whole" : "damaged",
                            x.bad.empty() ? color::green : color::red),
                    ", ", counted(x.files, "file"), ", ",
                    counted(x.checkpoints, "checkpoint"), ", ",
                    size_text(x.bytes), "\n");
  for (auto& one : x.bad)
    out += "  " + one_line(one.message) + '\n';
  return out;
}

expected<int> verify(const verify_arguments& x) {
  TROUPE_TRY(auto storage, storage_folder(x.storage));
  std::vector<strange_folder> strange;
  TROUPE_TRY(auto runs, x.what.empty() ? all_runs(storage, strange)
                                       : runs_named(x.what, storage, strange));
  auto code = done;
  auto all = json_object::array();
  for (auto& path : runs) {
    auto result = verify_run(path);
    if (!result.bad.empty())
      code = failed;
    if (x.json)
      all.push_back(json_of(result));
    else
      print(text_of(result));
  }
  for (auto& one : strange) {
    if (one.reason.code == ec::invalid_argument)
      continue; // not a run's
    complain(shown_name(one.path) + ": " + one.reason.message);
    code = failed;
  }
  if (x.json)
    print_json({{"runs", std::move(all)}});
  return code;
}

} // namespace

verb verify_verb() {
  return {
    "verify",
    "Compares all files of a run, of the trials of a sweep, or of all runs "
    "in a folder,\nwith their checksums.",
    [](CLI::App& app) -> action {
      auto x = std::make_shared<verify_arguments>();
      app
        .add_option("RUN", x->what,
                    "a run, a sweep, or a folder of runs (default: the\n"
                    "storage folder)")
        ->option_text(" ")
        ->check(not_empty);
      add_storage(app, x->storage);
      add_json(app, x->json);
      app.footer("Exit code 1 if a file is damaged or missing. Reports, "
                 "tables and logs have no\nchecksums.");
      return [x] { return verify(*x); };
    }};
}

} // namespace troupe::tool
