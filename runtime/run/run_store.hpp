#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/checkpoint/checkpoint_store.hpp"
#include "troupe/runtime/config/run_config.hpp"
#include "troupe/runtime/journal/journal.hpp"
#include "troupe/runtime/run/attempt_start.hpp"
#include "troupe/runtime/run/result.hpp"
#include "troupe/runtime/run/run_description.hpp"
#include "troupe/runtime/run/run_folder.hpp"

namespace troupe {

/// Everything durable of one run, from the moment its driver takes the name
/// until the result.
///
/// All calls may come from any thread. Two of them never wait for each other:
/// appending to the journal (microseconds) and committing a checkpoint (as slow
/// as the disk); calls of the checkpoint side wait for a commit under way.
class run_store {
public:
  /// Takes the run that *config* (resolved) names: makes its folder, locks it,
  /// recovers journal and checkpoints, and notes what was odd in the journal.
  /// An unfinished run is resumed; a finished one is `ec::conflict` with what
  /// to do about it. *config_text* goes into `run.json`.
  static expected<std::unique_ptr<run_store>>
  open(const run_config& config, const std::string& config_text = {});

  const fs::path& path() const noexcept { return folder_.path(); }
  const run_folder& folder() const noexcept { return folder_; }

  const run_description& description() const noexcept { return description_; }

  /// Whether an earlier driver began this run.
  bool resumed() const noexcept { return resumed_; }

  /// Rank 0's last metrics of an earlier driver or of this one.
  metrics last_metrics() const;

  /// How many reports the journal has.
  std::uint64_t next_report() const noexcept { return journal_->next_report(); }

  /// Reserves the number of the next attempt and finds the checkpoint it goes
  /// on from. From now on nothing of an earlier attempt can be committed.
  expected<attempt_start> begin_attempt();

  /// Commits the checkpoint of *batch*, which must have one. The caller appends
  /// the batch to the journal afterwards.
  expected<reported_checkpoint> commit(std::uint64_t attempt,
                                       const report_batch& batch);

  /// Appends a batch to the journal with the name of its committed checkpoint
  /// and the seconds that committing it took.
  expected<void> append(std::uint64_t attempt, const report_batch& batch,
                        const std::string& checkpoint = {},
                        double checkpoint_s = 0);

  /// `commit` if *batch* has a checkpoint, then `append`.
  expected<std::optional<reported_checkpoint>> store(std::uint64_t attempt,
                                                     const report_batch& batch);

  expected<void> append_event(std::string_view kind, std::uint64_t attempt,
                              const metrics& fields = {});

  /// Calls *f* after each line that is appended to the journal, on the thread
  /// that appends it. Set it before the run begins.
  void on_append(std::function<void()> f) { appended_ = std::move(f); }

  /// Makes the journal durable; call it at least once a second (N5).
  expected<void> sync_journal() { return journal_->sync(); }

  /// Committed checkpoints that were not evicted, oldest first.
  std::vector<reported_checkpoint> checkpoints() const;

  /// Notes the end of the run, in journal and state, and returns its result.
  expected<result> finish(run_status_kind status,
                          std::optional<run_error> error = std::nullopt);

  /// The result as it stands.
  result current_result() const;

  /// What was found on opening and by `begin_attempt` since the last call; it
  /// is in the journal already.
  std::vector<store_event> take_events();

private:
  run_store(run_folder folder, std::unique_ptr<journal> log,
            checkpoint_store checkpoints, run_description description,
            bool resumed);

  expected<void> note_events(std::vector<store_event> events);

  run_folder folder_;
  std::unique_ptr<journal> journal_;
  std::atomic<std::uint64_t> attempt_ = 0; // for events
  mutable std::mutex checkpoints_mutex_;   // guards `checkpoints_`
  checkpoint_store checkpoints_;
  mutable std::mutex notes_mutex_; // guards what follows; taken last
  metrics last_metrics_;
  std::vector<store_event> events_;
  const run_description description_;
  std::function<void()> appended_ = [] {};
  const bool resumed_;
};

} // namespace troupe
