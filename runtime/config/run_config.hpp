#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/runtime/config/rank_hooks.hpp"
#include "troupe/runtime/config/stop_config.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/inspect_as.hpp"

namespace troupe {

enum class score_order { max, min };

/// "max" or "min".
std::string_view to_string(score_order x) noexcept;

template <class Inspector>
bool inspect(Inspector& f, score_order& x) {
  return internal::inspect_enum(f, x, score_order::min);
}

/// Which checkpoints a run keeps.
struct checkpoint_config {
  /// How many of the best checkpoints to keep; the latest is kept in any case.
  /// Unset keeps all.
  std::optional<int> num_to_keep;
  /// Metric of rank 0 to rank checkpoints by, `a/b` for nested ones. Empty: the
  /// newest are the best. Checkpoints without such a number are below all
  /// others, the newest last to go; the console and the journal say so once.
  std::string checkpoint_score_attribute;
  score_order checkpoint_score_order = score_order::max;
};

namespace internal {

/// Whether *a* is better than *b*; NaN is worse than any number.
bool is_better(double a, double b, score_order order) noexcept;

/// Refuses `num_to_keep` < 1.
expected<void> validate(const checkpoint_config& x);

} // namespace internal

/// How often a run may fail before it ends.
struct failure_config {
  /// Restarts of the whole group after a rank failed. 0: the first failure ends
  /// the run. -1: without limit.
  int max_failures = 0;
  /// Restarts of a group that failed to start. 0: the first failure ends the
  /// run. -1: without limit, with back-off.
  int controller_failure_limit = 3;
};

class callback_actor;
class tracker;
class user_callback;

/// What an exception of a user callback does.
enum class callback_errors {
  log,   ///< It is logged and journaled; training continues.
  abort, ///< The run ends with `ec::callback_failed`.
};

namespace internal {

/// SIGTERM, SIGUSR1 and SIGHUP.
std::vector<int> default_preempt_signals() noexcept;

/// How long the sender of a signal waits until it kills, of the variable
/// TROUPE_SENDER_GRACE; unset: it does not say.
expected<std::optional<std::chrono::milliseconds>> sender_grace_of_host();

} // namespace internal

/// What happens if there is a finished run of the name.
enum class if_finished {
  refuse,  ///< It is an error; the run stays as it is.
  number,  ///< The next of `name-2`, `name-3`, ... that has not finished.
  replace, ///< The finished run is removed with all its files.
};

/// What a run is called, where it keeps its files and what may go wrong.
struct run_config {
  /// Name of the run, one path component. Storage path + name is the run's
  /// identity: an unfinished run of that name is resumed. Unset:
  /// `troupe_run-<date>-<time>-<pid>`, with a number after it if that is taken.
  std::optional<std::string> name;
  /// Folder of all runs; relative paths are made absolute, a leading `~` is the
  /// home folder.
  fs::path storage_path = "~/troupe_results";
  /// What to do about a finished run of that name.
  troupe::if_finished if_finished = troupe::if_finished::refuse;
  failure_config failure;
  checkpoint_config checkpoint;
  /// When the run has trained enough. Empty: when the loops return.
  stop_config stop;
  /// Called in order, each for every event.
  std::vector<std::shared_ptr<user_callback>> callbacks;
  /// Read the journal, each on its own thread. Made by the functions of
  /// "troupe/trackers.hpp".
  std::vector<std::shared_ptr<const tracker>> trackers;
  bool metrics_csv = true; ///< Keep rank 0's metrics as `metrics.csv`.
  bool report_page = true; ///< Write a page, `report.html`.
  /// The user's own actors, called after the `callbacks`, in order. Made by
  /// `as_callback` and `callback_at` of "troupe/actors.hpp".
  std::vector<std::shared_ptr<const callback_actor>> callback_actors;
  troupe::callback_errors callback_errors = troupe::callback_errors::log;
  /// Calls to callbacks that may be without an answer before `report()` is held
  /// back.
  int callback_queue = 64;
  /// A callback that has not returned for this long is named on the console,
  /// again after each such period. Zero: never.
  std::chrono::milliseconds callback_timeout = std::chrono::seconds{30};
  /// After this long without an answer the run continues without the callback,
  /// as if it had failed, so that `fit()` returns. Unset: it waits without
  /// limit.
  std::optional<std::chrono::milliseconds> callback_limit =
    std::chrono::hours{1};
  /// How long a rank may wait for the others in `report()`, `barrier()` or a
  /// broadcast, whatever they do meanwhile. Unset: without limit; ranks that
  /// are missing are named after 10 s and three of their usual steps.
  std::optional<std::chrono::milliseconds> report_timeout;
  /// How long a rank that others wait for, also after their end, may show no
  /// sign of life (CPU time, bytes in files or over TCP, its children's too):
  /// more than any answer takes that it waits for. One that is stopped is ended
  /// even if no rank waits; one with a GPU only then. Unset: without limit.
  std::optional<std::chrono::milliseconds> hang_timeout =
    std::chrono::seconds{60};
  /// How long a group may take from spawn until every rank runs its loop.
  std::chrono::milliseconds start_timeout = std::chrono::seconds{60};
  /// How long ranks may take to leave their loops once the run was asked to
  /// stop, before they are killed.
  std::chrono::milliseconds stop_timeout = std::chrono::seconds{5};
  /// How long a rank's process may take to exit after its loop has returned:
  /// freeing memory, a GPU, a last flush to slow storage. It is then killed,
  /// and still counts as returned.
  std::chrono::milliseconds exit_timeout = std::chrono::seconds{60};
  /// How long ranks may continue to report once the run is preempted, before
  /// they are ended as by a stop.
  std::chrono::milliseconds stop_grace = std::chrono::seconds{30};
  /// Signals that preempt the run. SIGINT stops it, as do SIGTERM and SIGHUP if
  /// they are not listed.
  std::vector<int> preempt_signals = internal::default_preempt_signals();
  /// How long the sender of such a signal waits before it kills the process
  /// (`terminationGracePeriodSeconds` of Kubernetes, for example): the grace is
  /// shortened so that `stop_timeout` still fits, also that of a host whose
  /// agent does not know its own. Unset: the environment variable
  /// `TROUPE_SENDER_GRACE`, in seconds, if there is one.
  std::optional<std::chrono::milliseconds> sender_grace;
  /// What every rank calls around its loop and after its reports.
  troupe::rank_hooks rank_hooks;
  /// Environment variables that rank processes get beside the program's own.
  /// They do not get what `secret_variables` lists (*_TOKEN, *_API_KEY, ...)
  /// unless it is named here: only the driver's side talks to trackers.
  std::map<std::string, std::string> worker_env;
  /// Nothing on the console: no progress, note or summary, and nothing that
  /// rank 0 prints.
  bool quiet = false;
  /// File, for this user alone, that gets the ticket of agents that the run
  /// does not launch itself. It holds a key; the run removes it at its end.
  fs::path agent_ticket;
};

namespace internal {

/// Refuses names that are not a single path component, negative limits and what
/// `validate(checkpoint_config)` refuses.
expected<void> validate(const run_config& x);

/// The name of a *kind*, "run" or "sweep", without one; the storage adds a
/// number if it is taken.
std::string generated_name(std::string_view kind);

/// *x*, which is valid, completed with values that depend on where and when the
/// run begins: an absolute storage path, the sender's grace.
run_config resolve(run_config x);

/// The longest grace that the sender of a signal allows the ranks of *x*.
std::chrono::milliseconds longest_grace(const run_config& x);

/// How long a host of *x* is there once it is about to leave, if it does not
/// say. At most `stop_grace`: senders on other hosts may wait for a shorter
/// time than that of the driver.
std::chrono::milliseconds host_grace(const run_config& x);

} // namespace internal

} // namespace troupe
