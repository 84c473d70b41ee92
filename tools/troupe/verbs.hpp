#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tools/command_line.hpp"
#include "tools/troupe/output.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"

// The verbs of `troupe`. Help, man page and completion come from the same
// description of each option.

namespace troupe::tool {

/// What a verb does; its exit code.
using action = std::function<expected<int>()>;

struct verb {
  std::string name;
  std::string about; ///< Sentences for the help, broken into lines.
  /// Adds the arguments to the verb's own part of the command line.
  std::function<action(CLI::App&)> define;
};

verb ls_verb();
verb show_verb();
verb tail_verb();
verb plot_verb();
verb compare_verb();
verb verify_verb();
verb stop_verb();
verb rm_verb();
verb report_verb();
verb serve_verb();
#ifdef TROUPE_WITH_TRACKERS
verb sync_verb();
#endif

/// The arguments that name a run, or a sweep.
struct run_arguments {
  std::string run;
  std::string storage;
  bool json = false;

  /// The run's folder.
  expected<fs::path> path() const;

  /// The folder of the run or the sweep of that name.
  struct folder {
    fs::path path;
    bool is_sweep = false;
  };
  expected<folder> run_or_sweep() const;
};

/// Adds RUN, `--storage` and `--json`.
std::shared_ptr<run_arguments> add_run_arguments(CLI::App& app);

/// Adds FOLDER, for `folder_of_runs`.
void add_folder_of_runs(CLI::App& app, std::string& to);
void add_storage(CLI::App& app, std::string& to);
void add_json(CLI::App& app, bool& to);

} // namespace troupe::tool
