#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/troupe/runs.hpp"
#include "troupe/callbacks/report_page/sweep_page.hpp"
#include "troupe/runtime/sweep/sweep_store.hpp"

// Sweeps as a reader finds them in a storage folder.

namespace troupe::tool {

/// What a sweep's folder says about it.
struct found_sweep {
  using time_point = found_run::time_point;

  /// How many trials are in which state.
  struct counts {
    std::size_t running = 0; ///< Of a sweep that runs.
    std::size_t finished = 0;
    std::size_t failed = 0;
    std::size_t others = 0; ///< Stopped, or begun before the sweep ended.
  };

  fs::path path;
  std::string name; ///< Of the folder, which may have been renamed.
  std::optional<internal::sweep_content> content; ///< Unset: unreadable.
  driver_presence presence = driver_presence::gone;
  std::vector<error> problems; ///< What could not be read.

  /// As of a run: `running`, `finished`, `errored`, `aborted`, `preempted`,
  /// `lost`, `elsewhere`, `unreadable`.
  std::string state_name() const;

  /// By index; empty if it is unreadable.
  const std::vector<trial>& trials() const;

  counts count() const;

  /// The trial with the best score; null: none has one.
  const trial* best() const;

  /// When its first start was.
  std::optional<time_point> begun() const;

  /// How long its last start took, or has taken so far.
  std::optional<double> seconds() const;
};

/// Reads the sweep in *path*. What cannot be read is a problem of the result.
found_sweep read_sweep_at(const fs::path& path);

/// Whether no driver of the sweep is left that could be asked anything.
bool has_ended(const found_sweep& x);

/// As `open_driver` of a run.
internal::unique_fd open_driver(const found_sweep& x);

/// As for a run: asks the driver of the sweep in *path* to end it. A sweep
/// does not end as finished before its time: `ec::invalid_argument`.
expected<process_identity> ask_sweep_to_end(const fs::path& path,
                                            internal::end_kind how);

/// The folder of the sweep called *given*: a path, a name in *storage*, or the
/// first digits of an id. Nothing: there is none, or a run comes first in that
/// order. `ec::invalid_argument`: several runs and sweeps have such an id.
expected<std::optional<fs::path>> find_sweep(const std::string& given,
                                             const fs::path& storage);

/// The folder whose runs *given* names: a storage folder, or a sweep by its
/// path, its name in *storage*, or the first digits of its id. Empty:
/// *storage*, which is as `storage_folder` takes it.
expected<fs::path> folder_of_runs(const std::string& given,
                                  const std::string& storage);

/// The state of trial *x* of *of*, as that of a run.
std::string state_name(const trial& x, const found_sweep& of);

/// "4 of 12 finished, 1 failed, 2 running"
std::string trials_text(const found_sweep& x);

/// "loss=0.25 (trial-0003)"; empty without a score.
std::string best_text(const found_sweep& x);

/// The sweep as its page shows it, with what trials under way have reported.
internal::sweep_facts facts_of(const found_sweep& x);

/// The sweep as JSON; names are stable.
json_object to_json(const found_sweep& x);

/// All that `troupe show` prints about it.
std::string shown_text(const found_sweep& x);
json_object shown_json(const found_sweep& x);

} // namespace troupe::tool
