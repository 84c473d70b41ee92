#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>

#include "troupe/callbacks/tracking/sink_result.hpp"
#include "troupe/callbacks/tracking/tracked_run.hpp"
#include "troupe/callbacks/tracking/tracker_record.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/journal/journal_line.hpp"

namespace troupe {

/// Records that a tracker wrote to files and its service does not have.
struct offline_files {
  std::string text;    ///< Where they are, why, and what to do next.
  bool wanted = false; ///< The user asked for files only.
};

/// Takes a run's records to one tracker: a service or files.
///
/// Driven by a `sink_feed` on one thread, which reads the run's journal, keeps
/// the place up to which the sink has confirmed (with `state()`) on disk, and
/// repeats what failed. The order of calls is: `check`, then `start`, `log` any
/// number of times, `finish`; after a failure, in another process or after
/// `finish` it begins again with `start`. Calls may block; they end within a
/// second once `run.cancelled` was asked to stop.
class sink {
public:
  virtual ~sink() = default;

  /// Stable, good as file name, one per run: `mlflow`.
  virtual std::string name() const = 0;

  /// The file in the run's folder that it writes, if it is one.
  virtual std::string file() const { return {}; }

  /// What `make_sink(name(), options())` builds an equal sink from in another
  /// process: a JSON object without any secret.
  virtual std::string options() const = 0;

  /// Refuses what can never work, before any rank starts: a missing credential,
  /// an unusable name. Asks no network. The sentence names the variable, the
  /// setting and the file looked for.
  virtual expected<void> check(const tracked_run&) const { return {}; }

  /// Opens the tracker's run, or opens it again. *state* is what `state()` was
  /// when records were last confirmed, empty the first time. A sink that writes
  /// files cuts them back to that state, since what came after it is given
  /// again. Success is saved with the new state before the first record.
  virtual sink_result start(const tracked_run& run,
                            const std::string& state) = 0;

  /// Takes *records* in order. After success all of them survive the death of
  /// this process.
  virtual sink_result log(std::span<const tracker_record> records) = 0;

  /// The run is over; *status* is how it ended, *time* when. All records were
  /// taken before.
  virtual sink_result finish(run_status_kind status,
                             std::chrono::system_clock::time_point time) = 0;

  /// What the next `start` needs beside the records: ids, sizes of files. Text
  /// of the sink's choice without any secret.
  virtual std::string state() const = 0;

  /// What of *run* was taken and lies in files, though the tracker is a
  /// service. Asks no network. An error: that cannot be told.
  virtual expected<std::optional<offline_files>>
  offline(const tracked_run&) const {
    return std::nullopt;
  }

  /// Uploads what `offline` names, as far as this host can: ask again after
  /// it.
  virtual sink_result upload(const tracked_run&) { return {}; }

  /// Of how many ranks, from the first on, it uses the values of a report. The
  /// others are given empty: a journal of many ranks is read much faster so.
  virtual std::size_t ranks() const { return all_ranks; }

  /// Whether `finish` writes everything again: the records right before the end
  /// are then not given to `log`.
  virtual bool finish_writes_all() const { return false; }

  /// Most records that one call of `log` is given.
  virtual std::size_t max_batch() const { return 1000; }
};

} // namespace troupe
