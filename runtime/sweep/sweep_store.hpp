#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/config/run_config.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/process/processes.hpp"
#include "troupe/runtime/storage/append_file.hpp"
#include "troupe/runtime/storage/file_lock.hpp"
#include "troupe/runtime/storage/held_folder.hpp"
#include "troupe/runtime/store/end_request.hpp"
#include "troupe/runtime/sweep/halving.hpp"
#include "troupe/runtime/sweep/trial.hpp"

namespace troupe::internal {

/// What makes two starts the same sweep: the content of `sweep.json`. A sweep
/// in which no trial has begun may be replaced by another one.
struct sweep_description {
  std::string name;
  std::string id;       ///< 32 hex digits; the same after every restart.
  std::string begun;    ///< When the first start was, UTC, ISO 8601.
  std::string space;    ///< As `space_text`.
  std::string searcher; ///< Its name.
};

/// What a trial was compared by, and how it came out.
struct trial_comparison {
  std::string metric;
  halving::entry content;
};

/// One start of a sweep, and what may differ from one to the next.
struct sweep_start {
  process_identity driver;
  std::string time;   ///< UTC, ISO 8601.
  std::string metric; ///< That trials are compared by.
  score_order order = score_order::min;
  std::optional<std::size_t> trials; ///< How many it asked for, if known.
  /// The loop's config as JSON, with the params of the sweep at one end of
  /// their ranges. Empty in a line of an older version.
  std::string config = {};
};

/// How a start has ended.
struct sweep_end {
  run_status_kind status = run_status_kind::finished;
  std::string time;   ///< UTC, ISO 8601.
  std::string reason; ///< Why it did not come to the end of the sweep.
};

/// What `sweep.jsonl` has about the starts before this one.
struct sweep_history {
  std::optional<sweep_start> start; ///< The last one.
  std::optional<sweep_end> end;     ///< Of the last one; unset: it was killed,
                                    ///< or is under way.
  std::vector<trial> trials;        ///< By index; those that have not ended are
                                    ///< `running`.
  std::vector<std::size_t> ends; ///< Indices of trials in order of their ends.
  std::vector<trial_comparison> comparisons;
  /// One for each damaged line, with its number: a power cut can take lines
  /// that were not synced.
  std::vector<error> damaged;

  /// How many trials there will be, if known. Those that have begun count even
  /// if the last start asked for fewer.
  std::optional<std::size_t> planned() const {
    if (!start || !start->trials)
      return std::nullopt;
    return std::max(*start->trials, trials.size());
  }

  /// What the last start compares trials by. Empty if there was none.
  std::string metric() const { return start ? start->metric : ""; }

  /// Which values of that are better.
  score_order order() const { return start ? start->order : score_order::min; }
};

/// A sweep as a reader finds it.
struct sweep_content {
  sweep_description description;
  sweep_history history;
};

/// Whether *path* is the folder of a sweep.
expected<bool> is_sweep(const fs::path& path);

/// What makes the sweep in the folder *path*. `ec::invalid_argument`: it is not
/// a sweep's; `ec::corrupt`: a damaged file.
expected<sweep_description> read_sweep_description(const fs::path& path);

/// Reads the sweep in the folder *path*, which a driver may hold meanwhile.
/// Errors are those of `read_sweep_description`; a damaged line is one only if
/// later lines do not fit without it.
expected<sweep_content> read_sweep(const fs::path& path);

/// Takes the lock of the sweep in *folder*, as its driver does. `ec::conflict`:
/// another process has it.
expected<own_lock> lock_sweep(const held_folder& folder);

/// Removes the files of the sweep in *folder*, whose lock the caller has. If
/// anything is left in it, which is returned, the file of the lock stays: the
/// next sweep of that name takes the folder.
expected<std::vector<std::string>>
remove_sweep_files(const held_folder& folder);

/// The durable part of a sweep: the folder `<storage>/<name>` with `sweep.json`
/// and the journal `sweep.jsonl`, beside the folders of its trials.
///
/// One process holds it at a time, by the file `sweep.lock`. All calls may come
/// from any thread.
///
///   SS-1  A trial has its line `trial_begun` on the disk before its run has a
///         folder: a restart gives it the same params.
///   SS-2  A trial with a line `trial_ended` never runs again, unless it failed
///         and has another line `trial_begun` after that.
///   SS-3  Once a line could not be made durable, none is added: one behind a
///         lost one would leave a damaged journal.
class sweep_store {
public:
  /// Takes the sweep in *storage_path* that is called `description.name`, or
  /// makes it; without a name, a new one. `ec::conflict` if the folder holds a
  /// run, another sweep or something else where no sweep was, or if another
  /// process has the sweep; the folder then stays as it is. `ec::corrupt` for a
  /// damaged file; a line of the journal may be damaged if nothing follows from
  /// it.
  static expected<std::unique_ptr<sweep_store>>
  open(const fs::path& storage_path, sweep_description description);

  const fs::path& path() const noexcept { return folder_.path(); }
  const sweep_description& description() const noexcept { return description_; }
  const sweep_history& history() const noexcept { return history_; }

  /// This start begins to run trials: adds the driver and the time to *x*.
  expected<void> start(sweep_start x);

  /// It ends, with *x* and the time.
  expected<void> finish(sweep_end x);

  /// Durable when it returns.
  expected<void> begin(const trial& x);
  expected<void> end(const trial& x);

  /// Survives a kill of this process, but perhaps not a power cut.
  expected<void> compare(const trial_comparison& x);

  /// What `troupe stop` has asked this driver for; it is returned once.
  expected<std::optional<end_request>> take_end_request() const;

private:
  explicit sweep_store(held_folder folder) : folder_(std::move(folder)) {}

  expected<void> refuse_others() const;
  expected<void> describe(sweep_description x);
  expected<void> open_journal();
  /// A damaged line may be that of a trial that has run (SS-1).
  expected<void> refuse_lost_trials() const;
  expected<void> append(const std::string& line, bool is_durable);

  held_folder folder_;
  own_lock lock_;
  sweep_description description_;
  sweep_history history_;
  std::mutex mutex_; // guards the journal
  append_file journal_;
  std::mutex sync_mutex_; // held while it syncs; appends do not wait for that
  sync_latch syncs_;
};

} // namespace troupe::internal
