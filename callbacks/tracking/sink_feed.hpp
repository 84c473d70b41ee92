#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "troupe/callbacks/tracking/record_reader.hpp"
#include "troupe/callbacks/tracking/sink.hpp"
#include "troupe/callbacks/tracking/sink_position.hpp"
#include "troupe/callbacks/tracking/tracker_options.hpp"

namespace troupe {

/// Feeds one sink from a run's journal and remembers on disk how far it came.
/// Holds what to do next, not when: its owner calls `pump` on a thread that may
/// block.
///
///   - Records reach the sink in order, at least once. The place is saved after
///     each success, together with the sink's state.
///   - The sink starts with what the loop gave to `start_tracking` before its
///     first record, and so it does after a restart, whatever the loop says
///     then: all that a run sends belongs together.
///   - A transient failure is repeated after a `backoff`. A batch whose records
///     are refused is halved until the record that is refused stands alone;
///     that one goes to `sinks/<name>.rejected.jsonl`.
///   - After a permanent failure the sink gets nothing more from this feed.
///   - A place that is damaged is set aside, and the sink begins again with the
///     first record, without a state.
///   - An exception counts as a transient failure and the sink begins again
///     from the saved place; after `max_throws` in a row it gets nothing more.
class sink_feed {
public:
  using clock = std::chrono::steady_clock;

  /// Says what people should know: once when a tracker begins to fail, once
  /// when it takes records again.
  using note_function = std::function<void(std::string)>;

  /// How often in a row a sink may throw before it gets nothing more.
  static constexpr int max_throws = 5;

  sink_feed(std::shared_ptr<sink> target, tracked_run run,
            const tracker_options& options, note_function note);

  /// Gives the sink what the journal holds, at most one batch. Returns when to
  /// call again: at once, at a time, or, if unset, when there is more in the
  /// journal.
  std::optional<clock::time_point> pump(clock::time_point now);

  /// Whether the sink has begun the run, and not ended it. On the thread that
  /// pumps.
  bool has_started() const noexcept { return started_; }

  /// No one waits for `pump` any more, which may yet return from a call of the
  /// sink: nothing is written to the run's folder from now on. Any thread.
  void leave() noexcept { left_ = true; }

  /// Why the sink takes nothing now; `ec::none`: it does.
  const error& trouble() const noexcept { return trouble_; }

  /// Records of the journal that the sink has not taken; counts them. Fails if
  /// the journal, or the place in it, cannot be read; one that is damaged
  /// counts as the begin.
  expected<std::uint64_t> unsent() const;

  /// Empty, or a sentence: records that the sink refused, now or earlier.
  std::string refused() const;

  /// What the sink was to upload and has in files only; empty: nothing.
  std::string left_in_files() const;

  const sink& target() const noexcept { return *target_; }

private:
  std::optional<clock::time_point> pump_once(clock::time_point now);
  std::optional<clock::time_point> threw(const char* what,
                                         clock::time_point now);
  void block(error reason);
  /// Whether nothing but the begin of an attempt has come, so that the loop may
  /// yet say what its run is called.
  bool awaits_names() const;
  sink_result open();
  sink_result send();
  sink_result send_records(std::size_t count);
  sink_result send_end();
  expected<void> read();
  expected<void> find_place();
  std::optional<clock::time_point> handle(const sink_failure& x,
                                          clock::time_point now);
  std::optional<clock::time_point>
  fail(error reason, clock::time_point now,
       std::optional<std::chrono::seconds> asked = std::nullopt);
  /// The sink has the first *count* records; *saved* on disk as well.
  sink_result taken(std::size_t count, bool saved = true);
  expected<void> reject(const tracker_record& x, const error& reason);
  expected<void> save();
  expected<std::uint64_t> unread() const;
  fs::path file(const char* ending) const;

  std::shared_ptr<sink> target_;
  tracked_run run_;
  const std::size_t max_batch_;
  backoff retry_;
  note_function note_;
  std::optional<record_reader> reader_;
  sink_position position_;
  bool is_resumed_ = false; ///< The sink has started before, with its names.
  /// Read and not taken yet; never empty while the sink fails.
  std::vector<tracker_record> held_;
  std::size_t limit_ = 0; ///< Most records of the next batch.
  bool started_ = false;
  std::atomic<bool> left_ = false;
  bool blocked_ = false; ///< By a permanent failure.
  int throws_ = 0;       ///< In a row.
  error trouble_;
  int same_failures_ = 0; ///< Of one batch, that the tracker answered with.
};

} // namespace troupe
