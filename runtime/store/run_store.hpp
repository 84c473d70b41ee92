#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "troupe/runtime/checkpoint/checkpoint.hpp"
#include "troupe/runtime/config/run_config.hpp"
#include "troupe/runtime/metrics/packed_metrics.hpp"
#include "troupe/runtime/process/threads.hpp"
#include "troupe/runtime/store/attempt_start.hpp"
#include "troupe/runtime/store/checkpoint_store.hpp"
#include "troupe/runtime/store/end_request.hpp"
#include "troupe/runtime/store/journal.hpp"
#include "troupe/runtime/store/kept_result.hpp"
#include "troupe/runtime/store/run_description.hpp"
#include "troupe/runtime/store/run_folder.hpp"

namespace troupe::internal {

struct last_attempt;

/// The durable part of one run, from the moment its driver takes the name until
/// the result.
///
/// All calls may come from any thread. Two of them never wait for each other:
/// appending to the journal (microseconds) and committing a checkpoint (as slow
/// as the disk); calls of the checkpoint side wait for a commit under way.
class run_store {
public:
  using taken_listener = std::function<expected<void>()>;

  /// Takes the run that *config* (resolved) names, or a new one if it names
  /// none: makes its folder, locks it, recovers journal and checkpoints, and
  /// notes repairs in the journal. An unfinished run is resumed; what happens
  /// to a finished one, `config.if_finished` says. *config_text* goes into
  /// `run.json`; *world_size* is compared with that of the earlier driver,
  /// unless it is 0. *on_taken* is called once the run is this driver's, before
  /// the recovery, which takes a dozen syncs; its failure is returned.
  static expected<std::unique_ptr<run_store>>
  open(const run_config& config, const std::string& config_text = {},
       std::size_t world_size = 0, const taken_listener& on_taken = {});

  const fs::path& path() const noexcept { return folder_->path(); }
  const run_folder& folder() const noexcept { return *folder_; }

  const run_description& description() const noexcept { return description_; }

  /// Rank 0's last metrics of an earlier driver or of this one.
  packed_metrics last_metrics() const;

  /// How many reports the journal has.
  std::uint64_t next_report() const noexcept { return journal_->next_report(); }

  /// The failures that count against the run's budgets, as an earlier driver
  /// left them. Those of a run that ended with an error do not count: its user
  /// has seen them.
  failure_counts failures() const;

  /// What they are now; durable with the next attempt, or with the end.
  void note_failures(const failure_counts& x);

  /// Why the run has trained enough, also as an earlier driver decided; empty
  /// if it has not.
  std::string stop_reason() const;

  /// Whether the latest attempt of an earlier driver was ended, or failed, and
  /// not because that driver died.
  bool was_interrupted() const noexcept { return was_interrupted_; }

  /// From now on the run has trained enough, for *reason*. The event
  /// `stop_decided`, which the caller appends, makes it durable.
  void note_stop(std::string reason);

  /// Reserves the number of the next attempt and finds the checkpoint it
  /// resumes from. From now on nothing of an earlier attempt can be committed.
  /// Waits for the processes of an earlier attempt, at most `start_timeout`;
  /// `ec::stopped` after `stop_waiting`.
  expected<attempt_start> begin_attempt();

  /// The run is to end: ends the wait in `begin_attempt`, now and later.
  void stop_waiting() noexcept { waiting_is_over_ = true; }

  /// Makes `begin_attempt` and `hold_checkpoints_again` also check *over*, on
  /// their own thread. An empty function removes the last one. Do not call it
  /// meanwhile.
  void stop_waiting_if(std::function<bool()> over) {
    given_up_ = std::move(over);
  }

  /// The earlier driver may have had ranks on hosts that are lost now. They end
  /// without it, but for those that are frozen, and NFS keeps what they had
  /// locked for its lease: the first attempt gives them up after the
  /// `lost_after` that the earlier driver has recorded + 5 s, but not before
  /// 15 s. If it recorded none, as an earlier version, *lost_after* counts.
  ///
  /// *lost_after* is that of this driver, which has other hosts; the first
  /// attempt records it.
  void expect_lost_hosts(std::chrono::milliseconds lost_after) noexcept;

  /// *host* is lost: attempts give up what may be left there of earlier ones.
  void abandon_ranks_of(const std::string& host);

  /// What a rank process needs to join the attempt.
  expected<ranks_ticket> ticket() const { return folder_->ticket(); }

  /// Its token, without a look at the storage; 0 while no attempt is under way.
  std::uint64_t ranks_token() const { return folder_->ranks_token(); }

  /// Commits the checkpoint of *batch*, which must have one. The caller appends
  /// the batch to the journal afterwards.
  expected<kept_checkpoint> commit(std::uint64_t attempt,
                                   const report_batch& batch);

  /// Callbacks have answered for all reports before *first*: checkpoints of it
  /// and of later ones can be read even if retention evicts them. Those are
  /// removed by the first commit or end for which that is no longer so, at the
  /// latest by `release`. Without a call no checkpoint stays for callbacks.
  void hold_checkpoints(std::uint64_t first) noexcept { held_from_ = first; }

  /// Callbacks will be called again for reports from *first* on: holds their
  /// checkpoints as above, also those that an earlier driver has evicted, and
  /// returns all that are there. One that is no longer whole is an event. Call
  /// it before the first attempt begins: reads all files of the evicted ones.
  /// `ec::stopped` if the run is to end meanwhile: then all stay.
  expected<std::vector<kept_checkpoint>>
  hold_checkpoints_again(std::uint64_t first);

  /// Appends a batch to the journal with the name of its committed checkpoint
  /// and the seconds that committing it took.
  expected<void> append(std::uint64_t attempt, const report_batch& batch,
                        const std::string& checkpoint = {},
                        double checkpoint_s = 0);

  expected<void> append_event(std::string_view kind, std::uint64_t attempt,
                              const metrics& fields = {});

  /// The same, of the attempt that began last.
  expected<void> append_event(std::string_view kind, const metrics& fields) {
    return append_event(kind, attempt_, fields);
  }

  /// Calls *f* after each line that is appended to the journal, on the thread
  /// that appends it. Set it before the run begins.
  void on_append(std::function<void()> f) { appended_ = std::move(f); }

  /// Calls *f* once, on the thread that notices, when the run cannot continue:
  /// its journal could not be made durable, or another driver has taken the
  /// run. The store checks both once a second (N5). From then on nothing can be
  /// appended or committed; *f*, which must not call the store, is not called
  /// once `release` has returned.
  void on_loss(std::function<void(const error&)> f);

  /// Calls *f* on the store's thread when someone asks this driver to end the
  /// run: see `end_request`. Not called once `release` has returned.
  void on_end_request(std::function<void(const end_request&)> f);

  /// Committed checkpoints that were not evicted, oldest first.
  std::vector<kept_checkpoint> checkpoints() const;

  /// Some of them, as `checkpoint_registry::page`.
  checkpoint_page checkpoints(std::uint64_t first, std::size_t max_bytes) const;

  /// The one of those that is called *name*; `ec::conflict` if something else
  /// has that name.
  expected<std::optional<kept_checkpoint>>
  find_checkpoint(const std::string& name);

  /// Notes the end of the run, in journal and state, and returns its
  /// result. Callbacks may still run: later lines are made durable as
  /// before.
  expected<kept_result> finish(run_status_kind status,
                               std::optional<run_error> error = std::nullopt);

  /// The run was given up before the first attempt of this driver began. Its
  /// state says so unless it has the end of an earlier one; the journal does
  /// not, which has no attempt that this could be the end of.
  expected<void> note_given_up(run_status_kind status,
                               const std::optional<run_error>& error);

  /// Makes the last lines durable and releases the run's name: another driver
  /// may take it, and nothing more is written here. Call it when all other
  /// writers to the folder have ended and no callback reads there.
  void release();

  /// The result as it stands.
  kept_result current_result() const;

  /// What was found on opening and by `begin_attempt` since the last call; it
  /// is in the journal already.
  std::vector<store_event> take_events();

private:
  run_store(std::unique_ptr<run_folder> folder, std::unique_ptr<journal> log,
            checkpoint_store checkpoints, run_description description);

  /// The run in *folder*; null if it has finished.
  static expected<std::unique_ptr<run_store>>
  open(std::unique_ptr<run_folder> folder, const run_config& config,
       const std::string& config_text, std::size_t world_size,
       const taken_listener& on_taken);

  /// Adds what attempt *x* resumes from to the events, if anything.
  void show_start(const attempt_start& x);
  /// After *last*, the run's last attempt; notes *events*.
  expected<void> begin(last_attempt last, std::vector<store_event> events);

  expected<void> note_events(std::vector<store_event> events);

  /// Calls *append*, which adds a line to the journal, while the run is ours.
  /// Checks again afterwards: a line that another driver may have missed does
  /// not count as written.
  template <class Append>
  expected<void> append_ours(Append append) {
    return seen(
      check().and_then(append).and_then([this] { return folder_->check(); }));
  }

  /// Forwards *x*. If it failed because another driver has the run, that is
  /// recorded.
  template <class T>
  expected<T> seen(expected<T> x) {
    if (!x && folder_->is_ousted())
      lose(x.error());
    return x;
  }

  expected<void> check() const;
  /// Whether the run is to end before it has begun.
  bool is_given_up() const {
    return waiting_is_over_ || (given_up_ && given_up_());
  }
  /// As in `ranks_lock`.
  std::string abandoned_hosts(std::chrono::milliseconds waited) const;
  expected<kept_result> store_end(run_status_kind status,
                                  std::optional<run_error> error);
  expected<void> start_sync() {
    return sync_.start([this] { return keep(); });
  }
  /// Makes the journal durable and checks that the run is still ours; the work
  /// of the store's thread.
  bool keep();
  expected<void> try_keep() noexcept;
  void pass_on_end_request();
  void lose(const error& reason);

  std::unique_ptr<run_folder> folder_;
  std::unique_ptr<journal> journal_;
  std::atomic<std::uint64_t> attempt_ = 0; // for events
  std::atomic<std::uint64_t> held_from_ =
    std::numeric_limits<std::uint64_t>::max();
  mutable std::mutex checkpoints_mutex_; // guards `checkpoints_`
  checkpoint_store checkpoints_;
  mutable std::mutex notes_mutex_; // guards what follows; taken last
  packed_metrics last_metrics_;
  std::vector<store_event> events_;
  failure_counts failures_;
  std::string stop_reason_;
  std::set<std::string> lost_hosts_; ///< Since the latest attempt began.
  /// How long the agents of the earlier driver may take until they know that it
  /// is gone, if their network is, and have ended their ranks. Unset: it had
  /// none.
  std::optional<std::chrono::milliseconds> earlier_agents_patience_;
  std::chrono::milliseconds lost_after_{0}; ///< Of this driver, as recorded.
  bool was_interrupted_ = false;            ///< Not changed after `open`.
  error loss_;                              // why the run cannot continue
  std::function<void(const error&)> lost_;
  std::function<void(const end_request&)> end_requested_;
  std::atomic<bool> is_lost_ = false; // `loss_` is set
  const run_description description_;
  std::chrono::milliseconds start_timeout_{0};
  std::atomic<bool> waiting_is_over_ = false;
  std::function<bool()> given_up_;
  std::function<void()> appended_ = [] {};
  const store_event_listener note_ = [this](store_event x) {
    std::vector<store_event> one;
    one.push_back(std::move(x));
    return note_events(std::move(one));
  };
  sync_thread sync_; // the last member: it uses the others
};

} // namespace troupe::internal
