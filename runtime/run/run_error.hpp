#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/run/rank_failure.hpp"

namespace troupe {

/// Why a run ended before its train loops did.
struct run_error {
  ec code = ec::none;
  std::string message; ///< For people: every failed rank with its cause.
  std::map<int, rank_failure> ranks; ///< Empty if no rank is to blame.

  bool operator==(const run_error&) const = default;
};

/// Longest text of one cause in `run_error::message`; the log has the rest.
inline constexpr std::size_t max_cause_size = 1000;

/// The error of a run whose *ranks* failed. Ranks with equal causes share a
/// line, `Rank 0, 3: …`; a cause over `max_cause_size` bytes is cut and points
/// to the rank's log below *run_path* (empty: ranks have no logs).
run_error make_run_error(std::map<int, rank_failure> ranks,
                         const fs::path& run_path);

/// The error of a run that failed for *reason* without a rank to blame.
run_error make_run_error(error reason);

template <class Inspector>
bool inspect(Inspector& f, run_error& x) {
  auto get = [&x] { return static_cast<std::uint8_t>(x.code); };
  auto set = [&x](std::uint8_t code) {
    x.code = static_cast<ec>(code);
    return x.code <= last_ec;
  };
  return f.object(x).fields(f.field("code", get, set),
                            f.field("message", x.message),
                            f.field("ranks", x.ranks));
}

} // namespace troupe
