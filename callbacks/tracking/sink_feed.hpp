#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "troupe/callbacks/tracking/record_reader.hpp"
#include "troupe/callbacks/tracking/sink.hpp"
#include "troupe/callbacks/tracking/tracker.hpp"
#include "troupe/runtime/process/forked_process.hpp"

namespace troupe::internal {

inline const error& reason_of(const error& x) {
  return x;
}

inline const error& reason_of(const sink_failure& x) {
  return x.reason;
}

/// Calls *f*, which calls *target*. A process that *target* forked ends right
/// after: it must start no run, save no position and send no other record.
template <class F>
auto call_sink(const sink& target, F f) {
  auto process = ::getpid();
  auto leave_if_child = [&](const error& failure) {
    if (::getpid() != process)
      leave_if_forked(process, "a call of tracker " + target.name(), failure);
  };
  try {
    auto result = f();
    if (result)
      leave_if_child({});
    else
      leave_if_child(reason_of(result.error()));
    return result;
  } catch (...) {
    leave_if_child(caught("it failed"));
    throw;
  }
}

/// Feeds one sink from a run's journal and saves its position on disk. Decides
/// what to do next, not when: its owner calls `pump` on a thread that may
/// block.
///
///   - Records reach the sink in order, at least once. The position is saved
///     after each success, together with the sink's state. Until it is, the
///     sink gets nothing more.
///   - The sink starts with the names that the loop gave to `start_tracking`
///     before its first record. It keeps them over restarts, whatever the loop
///     passes then: the records of a run belong together.
///   - A transient failure is retried after a `backoff`. A refused batch is
///     halved until the refused record is alone; that record goes to
///     `sinks/<name>.rejected.jsonl`. A batch that takes too long is halved for
///     the next attempt. If a record may be the reason of a transient failure,
///     the first one is sent alone, and refused after two minutes of that: a
///     server that restarts fails, too. If it fails with the next ones as well,
///     each of them has twice the time of the one before.
///   - After a permanent failure, or a refusal of the run by `start`, the sink
///     gets nothing more from this feed.
///   - A damaged position is set aside, and the sink starts over with the first
///     record, without a state.
///   - An exception counts as a transient failure, and the sink starts again
///     from the saved position; after `max_throws` in a row it gets nothing
///     more.
class sink_feed {
public:
  using clock = std::chrono::steady_clock;

  /// Gets notes for the user: those of the sink, one when it begins to fail,
  /// one when it takes records again, one for the first record that it refuses,
  /// the tenth, the hundredth and so on.
  using note_function = std::function<void(std::string)>;

  /// Exceptions in a row after which a sink gets nothing more.
  static constexpr int max_throws = 5;

  sink_feed(std::shared_ptr<sink> target, tracked_run run,
            const tracker_options& options, note_function note);

  /// Gives the sink at most one batch. Returns when to call again: at once, at
  /// a time, or, if empty, when the journal has grown.
  std::optional<clock::time_point> pump(clock::time_point now);

  /// Whether the sink has started the run and not finished it. Call it on the
  /// thread that calls `pump`.
  bool has_started() const noexcept { return started_; }

  /// Whether the sink has taken all that the journal had when `pump` read it
  /// last, and that is saved. More may have come since. Call it on the thread
  /// that calls `pump`.
  bool has_caught_up() const noexcept {
    return at_end_ && held_.empty() && is_saved_;
  }

  /// Whether the sink has taken records of which the saved position does not
  /// know. Call it on the thread that calls `pump`.
  bool may_repeat() const noexcept { return !is_saved_; }

  /// Writes nothing to the run's folder from now on, even if `pump` returns
  /// from a call of the sink later. Any thread may call.
  void leave() noexcept { left_ = true; }

  /// Why the sink takes nothing at present; `ec::none`: it takes records.
  const error& trouble() const noexcept { return trouble_; }

  /// Counts the records that the sink has not taken: none in a run that was
  /// killed before its loop said anything, which the next driver may name.
  /// Fails if the journal or the position cannot be read; a damaged position
  /// counts as the beginning.
  expected<std::uint64_t> unsent() const;

  /// A sentence on the records that the sink refused, now or earlier; empty:
  /// none.
  std::string refused() const;

  /// What the sink should upload but has in files only; empty: nothing.
  std::string left_in_files() const;

  const sink& target() const noexcept { return *target_; }

  const fs::path& run_path() const noexcept { return run_.path; }

private:
  std::optional<clock::time_point> pump_once(clock::time_point now);
  std::optional<clock::time_point> threw(const char* what,
                                         clock::time_point now);
  void block(error reason);
  void end_trouble();
  /// Whether only the beginning of an attempt has come, so that the loop may
  /// still name its run.
  bool awaits_names() const;
  sink_result open();
  sink_result send();
  /// Passes what the sink has for the user on to `note_`.
  void pass_notes_on();
  sink_result send_records(std::size_t count);
  /// The end that follows *before* records, which `finish` writes as well.
  sink_result send_end(std::size_t before);
  expected<void> read();
  /// Keeps what the loop has set, as long as only the begin of an attempt has
  /// come before *next*.
  void note_names(const std::optional<tracker_record>& next);
  expected<void> find_place();
  std::optional<clock::time_point> handle(const sink_failure& x,
                                          clock::time_point now);
  /// Whether the next *sent* records are to be halved, or refused, for *x*.
  /// Sends the first alone if one of them may be the reason.
  bool is_refused(const sink_failure& x, std::size_t sent,
                  clock::time_point now);
  std::optional<clock::time_point>
  fail(error reason, clock::time_point now,
       std::optional<std::chrono::seconds> asked = std::nullopt);
  /// Drops the first *count* records, which the sink has taken, and saves the
  /// position.
  sink_result taken(std::size_t count);
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
  bool is_saved_ = true;    ///< The last `save` has succeeded.
  bool is_resumed_ = false; ///< The sink was started before, with its names.
  /// What a sink that was not started before starts with. What loops set after
  /// the first record does not count, however far the journal has been read.
  std::optional<tracking_hints> names_;
  /// Read but not yet taken; never empty while the sink fails.
  std::vector<tracker_record> held_;
  std::vector<std::optional<run_status_kind>> statuses_; ///< At each of those.
  bool at_end_ = false;   ///< The journal was read to its end.
  std::size_t limit_ = 0; ///< Most records of the next batch.
  bool started_ = false;
  bool in_log_ = false; ///< What failed last is `log`.
  std::atomic<bool> left_ = false;
  bool blocked_ = false; ///< By a permanent failure.
  int throws_ = 0;       ///< In a row.
  error trouble_;
  std::uint64_t refusals_ = 0;
  std::uint64_t next_refusal_note_ = 1;
  int alone_failures_ = 0; ///< In a row, of the first record that is held.
  /// In a row, because the tracker failed with each: none was taken since.
  int suspects_refused_ = 0;
  /// When the first record that is held began to look like the reason of
  /// failures.
  std::optional<clock::time_point> suspect_since_;
};

} // namespace troupe::internal
