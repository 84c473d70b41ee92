#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/checkpoint/manifest.hpp"
#include "troupe/runtime/report/report.hpp"
#include "troupe/runtime/storage/held_folder.hpp"
#include "troupe/runtime/store/retention.hpp"
#include "troupe/runtime/store/saved_run.hpp"
#include "troupe/runtime/values/journal_entry.hpp"

namespace troupe::internal {

/// The run that checkpoints belong to.
struct run_identity {
  std::string name;
  std::string id; ///< As in `run_description`.
  /// The id was made just now: checkpoints of the run may have another.
  bool id_is_new = true;
  std::vector<std::string> former_ids{}; ///< As in `run_description`.
};

/// The checkpoints of a run on storage, and the state that names them.
///
/// A commit is: move the files of all ranks together, write the manifest,
/// fsync, rename to `checkpoints/<name>`, fsync the parent, save the state, and
/// only then remove what retention evicts. A crash anywhere leaves the
/// checkpoint whole or absent (N1, N2).
///
/// What retention evicts stays as long as callbacks may still read it
/// (`hold_from`), also for the next driver, if it has to call them again
/// (`hold_evicted`). The state names it, so that the next start can remove
/// the rest.
///
/// Nothing is removed by inference: only what the state names as evicted (or as
/// rotten, beyond the last three), and the staging folders. All else in
/// `checkpoints/` stays, with an event.
///
/// One thread at a time.
class checkpoint_store {
public:
  /// Replaces the run's state durably.
  using save_function = std::function<expected<void>(const saved_run&)>;

  /// Appends an event to the journal, as one of the given attempt.
  using log_function =
    std::function<expected<void>(const store_event&, std::uint64_t)>;

  /// Whether the run may still be written to.
  using check_function = std::function<expected<void>()>;

  /// Takes over the files of the run in *folder*, whose lock the caller
  /// holds. Staging folders of dead attempts are removed. A whole checkpoint
  /// that the state does not know is adopted if it is newer than all it
  /// knows: the crash came between rename and state. From then on
  /// `checkpoints/` is held: everything is created, renamed or removed in
  /// that folder, even if it is renamed. *log* records an event before a rotten
  /// checkpoint is set aside. *check*, if set, is asked before anything is
  /// renamed or removed.
  static expected<checkpoint_store> open(held_folder folder, run_identity run,
                                         const checkpoint_config& config,
                                         saved_run state, save_function save,
                                         log_function log = {},
                                         check_function check = {});

  /// Makes the files that ranks staged for *batch* a checkpoint. An error
  /// leaves the registered checkpoints as they were; if only saving the state
  /// failed, the new one stays and is adopted by the next start. `ec::conflict`
  /// for a file of two ranks (named, with both), different names, or a name in
  /// use; `ec::stopped` for an attempt that is no longer the current one (N6).
  expected<kept_checkpoint> commit(std::uint64_t attempt,
                                   const report_batch& batch);

  /// `ec::conflict` if no new checkpoint can be called *name*: the name is
  /// taken. A checkpoint of that name that retention evicted is removed, or
  /// left to `commit` if callbacks may read it.
  expected<void> make_room(const std::string& name);

  /// The latest checkpoint whose files are all as its manifest says; what
  /// retention had evicted before it is removed then. One that is rotten is set
  /// aside as `checkpoints/.rotten-<name>`, with an event.
  expected<std::optional<reported_checkpoint>> resume_checkpoint();

  /// Reserves the next attempt's number, durably (N6).
  expected<std::uint64_t> begin_attempt(std::uint64_t next_report);

  /// Checkpoints of report *first()* and later ones that retention evicts stay
  /// until the first commit, or end, at which *first* is past them. A new
  /// checkpoint of the same name replaces such a one. Called on the thread of
  /// the commit; unset, none stays.
  void hold_from(std::function<std::uint64_t()> first) {
    held_from_ = std::move(first);
  }

  /// Keeps those that an earlier driver has evicted, from report *first* on, as
  /// `hold_from` does, and returns them. A removal that was only begun is
  /// undone. One that is no longer whole is not kept, with the event
  /// `checkpoint_missing`. Reads all their files, and asks *given_up* before
  /// each: `ec::stopped` once that is true, and all stay on the disk. Call it
  /// before `resume_checkpoint`.
  expected<std::vector<kept_checkpoint>>
  hold_evicted(std::uint64_t first, const std::function<bool()>& given_up);

  /// Removes what `hold_from` has kept and the next driver does not need: if
  /// the run has finished, all of it, even if it is still being read.
  void remove_held();

  /// Saves how the run ended. A staging folder that cannot be removed is an
  /// event.
  expected<void> finish(run_status_kind status,
                        const std::optional<run_error>& error,
                        std::uint64_t next_report);

  /// Goes into the state with the next save.
  void note_failures(const failure_counts& x) { state_.failures = x; }

  /// The same for why the run was ended.
  void note_stop(std::string reason) { state_.stop_reason = std::move(reason); }

  /// The same for what the next driver has to know of the agents of this one.
  void note_lost_after(std::chrono::milliseconds x) {
    state_.lost_after_ms = x.count();
  }

  /// The same for whether a sync of the journal has failed.
  void note_unsynced_journal(bool x) { state_.journal_unsynced = x; }

  const checkpoint_registry& registry() const noexcept { return registry_; }
  const saved_run& state() const noexcept { return state_; }

  /// Earlier ids of the run. If the current one is new, they include those of
  /// the checkpoints in the state.
  const std::vector<std::string>& former_ids() const noexcept {
    return run_.former_ids;
  }

  /// The manifest of *x*, which the run has.
  expected<manifest> manifest_of(const kept_checkpoint& x) const {
    return read_manifest(checkpoints_, x.data.name());
  }

  /// What happened since the last call, for the journal.
  std::vector<store_event> take_events();

private:
  checkpoint_store(held_folder folder, held_folder checkpoints,
                   run_identity run, const checkpoint_config& config,
                   saved_run state, save_function save, log_function log,
                   check_function check);

  /// Whether the run is ours, and `checkpoints/` still the folder that we hold.
  expected<void> check() const;
  /// Only the latter: files in another folder would be lost.
  expected<void> check_place() const;

  expected<report_batch> take_lists(std::uint64_t attempt,
                                    report_batch batch) const;
  expected<void> recover();
  expected<void> recover_unknown(const std::string& name, const manifest& x);
  /// Saves the state with *registry* in it, and *evicted* as doomed.
  expected<void> save(checkpoint_registry registry,
                      const std::vector<kept_checkpoint>& evicted = {});
  /// Its event comes first, so that the journal explains every move.
  expected<void> set_aside(const std::string& name, const error& reason);
  expected<void> keep_rotten(const std::string& name);
  /// Replaces the state, which no longer names what was removed: a power cut
  /// must not bring that back.
  expected<void> write_state(const saved_run& x);
  void note(std::string kind, const std::string& name,
            const std::string& reason);
  /// Notes, once, that *x* has no score though the run ranks checkpoints by
  /// one.
  void note_unscored(const kept_checkpoint& x);
  void note_unlisted_files(const kept_checkpoint& x, const manifest& its);
  bool is_doomed(const std::string& name, const manifest& x) const;
  /// Notes the ids that the run's checkpoints have, where it has got a new one.
  expected<void> find_former_ids();
  /// Whether the run made *x*, even if its folder had another name then.
  bool is_ours(const manifest& x) const;
  /// Removes *x* if its folder is still that one. `ec::corrupt` if it is
  /// missing or another one: then it is no longer doomed.
  expected<void> remove(const doomed_checkpoint& x);
  /// What *x* is called while it is removed.
  static std::string evicted_name(const doomed_checkpoint& x);
  /// Renames the folder of *x* before its removal. Returns the new name.
  expected<std::string> put_away(const doomed_checkpoint& x) const;
  void remove_doomed();
  /// Removes those of `evicted_` that *may_remove*, each once.
  template <class Predicate>
  void remove_evicted(const Predicate& may_remove);
  void remove_answered();
  /// Checkpoints that retention has evicted and that still exist.
  expected<std::vector<kept_checkpoint>> find_doomed();
  /// Gives *x* its name back if a driver died before it removed any of it.
  /// Returns whether it did.
  expected<bool> recall(const doomed_checkpoint& x);
  /// Saves the state without the rotten checkpoint *name*, and in the same step
  /// with what retention had evicted for a newer one.
  expected<void> strike(const std::string& name);
  /// Removes every folder whose name begins with *prefix*, as far as possible.
  void drop(const char* prefix);
  /// Whether the checkpoint is whole and the one that the state means; its
  /// manifest. The run may have had another name, its folder can be moved.
  expected<manifest> verify(const std::string& name, std::uint64_t index,
                            std::uint64_t attempt) const;
  /// Makes the files of *x* (whole) the run's alone. Returns its manifest.
  expected<manifest> separate(const kept_checkpoint& x, manifest its);
  checkpoint handle(const std::string& name) const {
    return checkpoint::from_directory(checkpoints_.path() / name);
  }

  held_folder folder_;
  held_folder checkpoints_;
  run_identity run_;
  saved_run state_;
  checkpoint_registry registry_;
  save_function save_state_;
  log_function log_;
  check_function check_;
  std::function<std::uint64_t()> held_from_;
  /// Still there, for callbacks; the state names them as doomed.
  std::vector<doomed_checkpoint> evicted_;
  std::vector<store_event> events_;
  bool has_noted_unscored_ = false;
  bool has_removed_ = false; ///< Names in `checkpoints/`, since it was synced.
};

} // namespace troupe::internal
