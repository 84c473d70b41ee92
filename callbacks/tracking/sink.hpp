#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "troupe/callbacks/tracking/tracked_run.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/metrics/metrics.hpp"
#include "troupe/runtime/store/journal_line.hpp"
#include "troupe/runtime/values/journal_entry.hpp"
#include "troupe/runtime/values/run_status.hpp"

namespace troupe {

/// Metrics that a train loop logged besides reports.
struct logged_metrics {
  std::int64_t step = 0;
  metrics values;
};

/// Settings of the run that a train loop logged besides its config.
struct logged_params {
  metrics values;
};

struct logged_text {
  std::int64_t step = 0;
  std::string name;
  std::string text;
};

/// An image that is kept as PNG in the run's folder.
struct logged_image {
  std::int64_t step = 0;
  std::string name;
  fs::path file; ///< Absolute.
  int width = 0; ///< Pixels.
  int height = 0;
  int channels = 0; ///< 1 gray, 2 gray with alpha, 3 RGB, 4 RGB with alpha.
};

/// The number of values in each bucket.
struct logged_histogram {
  std::int64_t step = 0;
  std::string name;
  double min = 0, max = 0, sum = 0, sum_squares = 0;
  std::vector<double> limits; ///< Upper limit of each bucket, ascending.
  std::vector<double> counts; ///< As many as `limits`.
};

/// A file or a whole folder that belongs to the run.
struct logged_artifact {
  fs::path path;    ///< Absolute.
  std::string name; ///< Relative path under which the tracker shows it.
};

/// An attempt begins with report *first_report*. Earlier records with that
/// index or a higher one were lost to a rollback.
struct attempt_record {
  std::uint64_t first_report = 0;
};

/// The run has ended, unless another driver resumes it.
struct run_end_record {
  run_status_kind status = run_status_kind::finished;
};

/// One entry of a run's journal as trackers see it.
struct tracker_record {
  using content_type =
    std::variant<journaled_batch, logged_metrics, logged_params, logged_text,
                 logged_image, logged_histogram, logged_artifact,
                 attempt_record, run_end_record>;

  std::uint64_t attempt = 0;
  /// When it was reported; stays the same if the record is sent again. Never
  /// decreases from record to record.
  std::chrono::system_clock::time_point time;
  /// Offset of the journal after the record, in bytes: unique and ascending.
  std::uint64_t end = 0;
  content_type content;
};

/// Why a tracker did not take records, and what to do about it.
struct sink_failure {
  enum class kind {
    transient, ///< A retry may succeed: the tracker is down, busy or slow.
    rejected,  ///< These records will always be refused; others may be taken.
    permanent, ///< Nothing is taken until someone changes a credential, a name
               ///< or a permission.
  };

  kind what = kind::transient;
  /// One sentence that names the variable or setting that would help. Contains
  /// no secret; those that this process knows are removed.
  error reason;
  /// How long the tracker asks to wait.
  std::optional<std::chrono::seconds> retry_after;
  /// How many records, from the first on, the tracker has taken. Of a failure
  /// of `log` only.
  std::size_t accepted = 0;
  /// For a transient failure: the tracker failed while handling the request
  /// (HTTP 500), so these records may be the reason. One that still fails after
  /// two minutes is refused. With `ec::storage` a file of the record is the
  /// reason, or its store; else the tracker may fail with all records, so that
  /// those after a refused one have more time as long as none is taken.
  bool suspect = false;
};

/// Success, or the failure.
using sink_result = tl::expected<void, sink_failure>;

inline tl::unexpected<sink_failure>
sink_fails(sink_failure::kind what, error reason, std::size_t accepted = 0) {
  return tl::unexpected{
    sink_failure{what, std::move(reason), std::nullopt, accepted}};
}

namespace internal {

/// The result of a sink that writes files. A failure is transient: storage may
/// recover, and a batch is in a file completely or not at all.
inline sink_result file_result(const expected<void>& x) {
  if (x)
    return {};
  return sink_fails(sink_failure::kind::transient, x.error());
}

} // namespace internal

/// Records that a tracker wrote to files only, not to its service.
struct offline_files {
  std::string text;    ///< Where they are, why, and the next step.
  bool wanted = false; ///< As the user asked for.
};

/// Writes a run's records to one tracker: a service or files.
///
/// A `sink_feed` calls it on one thread. The feed reads the run's journal,
/// saves the position that the sink has confirmed together with `state()`, and
/// retries after failures. The order of calls is `check`, `start`, any number
/// of `log`, `finish`; after a failure, in another process and after `finish`
/// it begins again with `start`. Calls may block; they end within a second of a
/// stop request of `run.cancelled`.
class sink {
public:
  virtual ~sink() = default;

  /// Stable, valid as a file name and unique within a run: `mlflow`.
  virtual std::string name() const = 0;

  /// The one file in the run's folder that it writes; empty: none.
  virtual std::string file() const { return {}; }

  /// A JSON object without secrets, from which `make_sink(name(), options())`
  /// builds an equal sink in another process.
  virtual std::string options() const = 0;

  /// A sink with equal options for another run, at the same time: each trial of
  /// a sweep gets its own. Null: its options name something that only one run
  /// can have, such as a port.
  virtual std::shared_ptr<sink> another() const { return nullptr; }

  /// Refuses what can never work, before any rank starts: a missing credential,
  /// an unusable name. Uses no network. The sentence names the variable, the
  /// setting and the file that were looked for. Called before the run has its
  /// folder and its id, and once more when it has them.
  virtual expected<void> check(const tracked_run&) const { return {}; }

  /// Opens or reopens the tracker's run. *state* is the value of `state()` when
  /// records were last confirmed; empty the first time. A sink that writes
  /// files cuts them back to that state: later records are given again. The new
  /// state is saved before the first record.
  virtual sink_result start(const tracked_run& run,
                            const std::string& state) = 0;

  /// Sentences for the user since the last call: on what was done otherwise
  /// than asked, or what to do next. Called after each `start`, `log` and
  /// `finish` that succeeds. A quiet run shows none; a sink prints nothing.
  virtual std::vector<std::string> take_notes() { return {}; }

  /// Takes *records* in order. After success all of them survive a crash of
  /// this process.
  virtual sink_result log(std::span<const tracker_record> records) = 0;

  /// The run ended with *status* at *time*. All records were taken before.
  virtual sink_result finish(run_status_kind status,
                             std::chrono::system_clock::time_point time) = 0;

  /// What the next `start` needs besides the records: ids, sizes of files. Any
  /// text without secrets.
  virtual std::string state() const = 0;

  /// Records of *run* that are in files only, though the tracker is a service.
  /// Uses no network. An error: that is unknown.
  virtual expected<std::optional<offline_files>>
  offline(const tracked_run&) const {
    return std::nullopt;
  }

  /// Uploads what `offline` names, as far as this host can; call `offline`
  /// again to see what is left.
  virtual sink_result upload(const tracked_run&) { return {}; }

  /// The number of ranks, from the first on, whose values it uses. The others
  /// are empty: that makes the journal of many ranks much faster to read.
  virtual std::size_t ranks() const { return internal::all_ranks; }

  /// Whether `finish` writes everything again: `log` then does not get the
  /// records right before the end.
  virtual bool finish_writes_all() const { return false; }

  /// Most records per call of `log`.
  virtual std::size_t max_batch() const { return 1000; }
};

namespace internal {

/// A sink that `make_sink` knows, so that `troupe sync` can send what it has
/// not taken. One of the user's own exists in the user's program only.
class built_in_sink : public sink {};

} // namespace internal

} // namespace troupe
