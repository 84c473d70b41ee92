#pragma once

#include <array>
#include <optional>
#include <string_view>

/// Names of what a run has in its folder. A new one goes here, and into
/// `entries`: no table of the user may be called so (`csv_options::file`), and
/// `troupe rm` removes it.
namespace troupe::internal::run_layout {

inline constexpr const char* description = "run.json";
inline constexpr const char* state = "state.json";
inline constexpr const char* journal = "journal.jsonl";
/// Keeps apart two drivers that start at once.
inline constexpr const char* lock = "lock";
/// Held by the processes of ranks.
inline constexpr const char* ranks = "ranks";
inline constexpr const char* end_request = "end_request";
/// How far callbacks have come.
inline constexpr const char* callback_cursor = "callbacks.told";

inline constexpr const char* attempts = "attempts";
inline constexpr const char* checkpoints = "checkpoints";
inline constexpr const char* logs = "logs";
inline constexpr const char* return_values = "return_values";
/// How the names of the manifests of values in that folder end.
inline constexpr const char* value_manifest = ".manifest.json";
/// How far trackers have come, and their options.
inline constexpr const char* sinks = "sinks";
/// What callbacks of the user keep.
inline constexpr const char* callbacks = "callbacks";
/// Images that the loop logged, ...
inline constexpr const char* media = "media";
/// ... and copies of files that it logged from elsewhere.
inline constexpr const char* artifacts = "artifacts";

inline constexpr const char* report_page = "report.html";
inline constexpr const char* result = "result.json";
inline constexpr const char* params = "params.json";
inline constexpr const char* comet = "comet";
inline constexpr const char* tensorboard = "tensorboard";
inline constexpr const char* wandb = "wandb";

/// How names in `checkpoints` begin that are not checkpoints of the run: the
/// unfinished files of an attempt, which the next start removes, ...
inline constexpr const char* staging_prefix = ".staging-";
/// ... what retention is removing, ...
inline constexpr const char* evicted_prefix = ".evicted-";
/// ... and what was found damaged.
inline constexpr const char* rotten_prefix = ".rotten-";

/// How names in `tensorboard` begin: event files, of other programs, too, ...
inline constexpr std::string_view event_prefix = "events.out.tfevents.";
/// ... and what the tracker put aside, with the rest of its name.
inline constexpr std::string_view former_event_prefix = "former.";
/// The event file of parameters while it is written. Readers find event files
/// by "tfevents", which this lacks.
inline constexpr const char* unfinished_params = ".params.new";

/// How the name of the empty file begins that shows, for a moment, which owner
/// new files get.
inline constexpr const char* owner_prefix = ".owner-";

/// Not of a run: the file that makes a folder that of a sweep, ...
inline constexpr const char* sweep_description = "sweep.json";
/// ... the journal of the sweep, ...
inline constexpr const char* sweep_journal = "sweep.jsonl";
/// ... and the page that it gets at its end.
inline constexpr const char* sweep_page = "compare.html";

/// The folder of MLflow's file store, which lies beside the folders of runs.
inline constexpr const char* mlflow_tree = "mlruns";

enum class entry_kind {
  file,
  tree,   ///< All that is in it is the run's.
  shared, ///< A folder that may have files of others.
  proof,  ///< A folder without any of these files holds no run.
};

struct entry {
  std::string_view name;
  entry_kind kind = entry_kind::file;
};

inline constexpr std::array entries{
  entry{artifacts, entry_kind::tree},
  entry{attempts, entry_kind::shared},
  entry{callback_cursor},
  entry{callbacks, entry_kind::tree},
  entry{checkpoints, entry_kind::shared},
  entry{comet, entry_kind::tree},
  entry{description, entry_kind::proof},
  entry{end_request},
  entry{journal},
  entry{lock, entry_kind::proof},
  entry{logs, entry_kind::shared},
  entry{media, entry_kind::tree},
  entry{params},
  entry{ranks, entry_kind::proof},
  entry{report_page},
  entry{result},
  entry{return_values, entry_kind::tree},
  entry{sinks, entry_kind::tree},
  entry{state, entry_kind::proof},
  entry{tensorboard, entry_kind::shared},
  entry{wandb, entry_kind::tree},
};

/// *name* without the ending of a temporary file, `<name>.new` or
/// `<name>.NNNNNN`, or of one that was put aside, `<name>.1`.
std::string_view plain_name(std::string_view name) noexcept;

/// What *name* is, which may be that of a file while it is written; nothing if
/// it is none of `entries`.
std::optional<entry_kind> kind_of(std::string_view name) noexcept;

/// Whether an entry called *name* of a run's folder is Troupe's.
bool is_own_name(std::string_view name) noexcept;

/// Whether a run wrote the event file *name*: it ends in ".<id>-<number>".
bool is_event_file(std::string_view name) noexcept;

/// Whether *name* is that of such a file that the tracker put aside; a second
/// one ends in another ".<number>".
bool is_former_event_file(std::string_view name) noexcept;

} // namespace troupe::internal::run_layout
