#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>

#include "troupe/runtime/each_field.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/inspect_as.hpp"

namespace troupe {

/// How a rank failed, and where it was when it did.
struct rank_failure {
  /// New kinds go last: they travel in messages and are stored by number.
  enum class kind_type : std::uint8_t {
    exception, ///< The train loop threw an exception; `what` has its text.
    exit_code, ///< The process called `exit(code)`.
    signal,    ///< The process was killed by signal `code`.
    thread_exception, ///< An exception ended a thread other than the loop's.
    lost,             ///< The connection broke, and the process is not known to
                      ///< have ended.
    timeout,          ///< It took longer than a limit; `what` names it.
    start_failed,     ///< It never began its loop.
    misuse, ///< It broke a rule that all ranks share, such as reports that no
            ///< other rank matched; `what` says which.
  };

  kind_type kind = kind_type::exception;
  int code = 0;     ///< Exit code or signal; 0 for other kinds.
  std::string what; ///< Text of the exception, or more about the cause.
  int pid = 0;      ///< 0: not known.
  std::string host;

  bool operator==(const rank_failure&) const = default;
};

/// The cause in one sentence without rank, pid or host, so that ranks with the
/// same cause can be listed together: `killed by signal 9 (SIGKILL)`.
std::string to_string(const rank_failure& x);

template <class Inspector>
bool inspect(Inspector& f, rank_failure::kind_type& x) {
  return internal::inspect_enum(f, x, rank_failure::kind_type::misuse);
}

TROUPE_INSPECT(rank_failure, kind, code, what, pid, host)

/// Why a run ended before its train loops did.
struct run_error {
  ec code = ec::none;
  std::string message; ///< Human-readable: each failed rank, its cause.
  std::map<int, rank_failure> ranks; ///< Empty if no rank is to blame.

  bool operator==(const run_error&) const = default;
};

namespace internal {

/// Longest text of one cause in `run_error::message`; the log has the rest.
inline constexpr std::size_t max_cause_size = 1000;

/// Most causes that are listed; the other ranks are counted.
inline constexpr std::size_t max_listed_causes = 16;

/// Why *ranks* failed, in one line without logs: "ranks 0, 3: exit(3); rank 1:
/// lost". Ranks with equal causes are listed together.
std::string failures_text(const std::map<int, rank_failure>& ranks);

/// The error of a run whose *ranks* failed. Ranks with equal causes share a
/// line, `Ranks 0, 3: …`. A cause that says little or is over `max_cause_size`
/// bytes and cut points to the rank's log below *run_path* (empty: ranks have
/// no logs).
run_error make_run_error(std::map<int, rank_failure> ranks,
                         const fs::path& run_path);

/// The error of a run that failed for *reason* without a rank to blame.
run_error make_run_error(error reason);

} // namespace internal

TROUPE_INSPECT(run_error, code, message, ranks)

namespace internal {

/// How many failures of each kind a run has had. Stored with the run, so that
/// the next driver continues them.
struct failure_counts {
  std::int64_t ranks = 0;  ///< Groups whose ranks failed.
  std::int64_t starts = 0; ///< Groups that failed to start.

  bool operator==(const failure_counts&) const = default;
};

} // namespace internal

/// Thrown by `result::value_or_throw` for a run that did not finish.
class run_failed : public std::runtime_error {
public:
  explicit run_failed(run_error reason)
    : std::runtime_error(reason.message), reason_(std::move(reason)) {}

  const run_error& reason() const noexcept { return reason_; }

private:
  run_error reason_;
};

} // namespace troupe
