#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/store/checkpoint_store.hpp"
#include "troupe/runtime/store/journal.hpp"
#include "troupe/runtime/store/journal_reader.hpp"
#include "troupe/runtime/store/run_description.hpp"
#include "troupe/runtime/store/saved_run.hpp"

// What a start makes of the state and the journal that an earlier driver left:
// each has what the other may lack.

namespace troupe::internal {

struct found_state {
  saved_run state;
  std::vector<store_event> events;
};

/// The run's state; rebuilt from the journal if it is damaged or lost, so that
/// a finished run stays finished. The checkpoint store adopts what the rebuilt
/// one does not know.
expected<found_state> find_state(const fs::path& journal_file,
                                 const journal& log,
                                 expected<std::optional<saved_run>> saved);

/// Appends the reports that came with a checkpoint and are in no line: their
/// driver died between commit and journal (N4, N5), or the journal was lost.
/// Returns what to show about it.
expected<std::vector<store_event>>
complete_journal(journal& log, const checkpoint_store& checkpoints);

/// Appends how the run ended, which the journal could not take at the time;
/// after a driver was killed or lost the folder, nothing else is known. Returns
/// what to show about it.
expected<std::vector<store_event>>
complete_end(journal& log, const last_attempt& last, const saved_run& state);

/// What is known of an earlier driver of the run.
struct earlier_driver {
  std::uint64_t next_attempt = 0; ///< 0: there was none.
  std::size_t world_size = 0;     ///< 0: not known.
};

/// What the description *now* has of another driver than *before*, and the
/// *world_size*: a lost `run.json`, another program, config or number of ranks.
std::vector<store_event> changes_since(const earlier_driver& before,
                                       const run_description& now,
                                       std::size_t world_size);

/// The fields of the event `run_ended`.
metrics end_fields(run_status_kind status,
                   const std::optional<run_error>& error);

/// The failures that count: those in the state when the last attempt began, and
/// that attempt's own failure if its driver died before it could store it.
failure_counts failures_of(const saved_run& state, const last_attempt& last);

} // namespace troupe::internal
