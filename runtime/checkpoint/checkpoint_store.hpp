#pragma once

#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/checkpoint/checkpoint_registry.hpp"
#include "troupe/runtime/checkpoint/manifest.hpp"
#include "troupe/runtime/report/report_batch.hpp"
#include "troupe/runtime/run/saved_run.hpp"
#include "troupe/runtime/storage/store_event.hpp"

namespace troupe {

/// The checkpoints of a run on storage, and the state that names them.
///
/// A commit is: move the files of all ranks together, write the manifest,
/// fsync, rename to `checkpoints/<name>`, fsync the parent, save the state, and
/// only then remove what retention lets go. A crash anywhere leaves the
/// checkpoint whole or absent (N1, N2).
///
/// One thread at a time.
class checkpoint_store {
public:
  /// Takes over the files of the run in *run_path*, whose lock the caller
  /// holds. Staging folders of dead attempts are removed. A whole checkpoint
  /// that the state does not know is adopted if it is newer than all it knows
  /// (the crash came between rename and state) and removed if it is older (it
  /// came between state and eviction).
  static expected<checkpoint_store> open(fs::path run_path,
                                         std::string run_name,
                                         const checkpoint_config& config,
                                         saved_run state);

  /// Makes the files that ranks staged for *batch* a checkpoint. An error
  /// leaves the checkpoints as they were: `ec::conflict` for a file of two
  /// ranks (named, with both), different names, or a name in use; `ec::stopped`
  /// for an attempt that is no longer the current one (N6).
  expected<reported_checkpoint> commit(std::uint64_t attempt,
                                       const report_batch& batch);

  /// The latest checkpoint whose files are all as its manifest says. One that
  /// is rotten is set aside as `checkpoints/.rotten-<name>`, with an event.
  expected<std::optional<reported_checkpoint>> resume_checkpoint();

  /// Reserves the next attempt's number, durably (N6).
  expected<std::uint64_t> begin_attempt(std::uint64_t next_report);

  /// Saves how the run ended.
  expected<void> finish(run_status_kind status,
                        const std::optional<run_error>& error,
                        std::uint64_t next_report);

  /// Removes what ranks of attempts before the current one left in staging.
  expected<void> drop_staging();

  const checkpoint_registry& registry() const noexcept { return registry_; }
  const saved_run& state() const noexcept { return state_; }

  /// What happened since the last call, for the journal.
  std::vector<store_event> take_events();

private:
  checkpoint_store(fs::path run_path, std::string run_name,
                   const checkpoint_config& config, saved_run state);

  expected<void> recover();
  expected<void> recover_unknown(const std::string& name, const manifest& x);
  expected<void> save(const checkpoint_registry& registry);
  expected<void> set_aside(const std::string& name, const error& reason);
  void note(std::string kind, const std::string& name,
            const std::string& reason);
  void evict(const std::vector<reported_checkpoint>& old);
  fs::path folder() const { return run_path_ / "checkpoints"; }

  fs::path run_path_;
  std::string run_name_;
  saved_run state_;
  checkpoint_registry registry_;
  std::vector<store_event> events_;
};

} // namespace troupe
