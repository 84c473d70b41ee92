#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/troupe/output.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/metrics/metrics.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/processes.hpp"
#include "troupe/runtime/store/end_request.hpp"
#include "troupe/runtime/store/run_description.hpp"
#include "troupe/runtime/store/saved_run.hpp"
#include "troupe/runtime/values/journal_entry.hpp"

// Runs as a reader finds them in a storage folder. Nothing here takes a lock or
// writes: a driver never notices.

namespace troupe::tool {

using internal::process_identity;
using internal::run_description;
using internal::saved_run;

/// Whether a run has a driver.
enum class driver_presence {
  gone,
  live,      ///< Its process is on this host.
  elsewhere, ///< On another host, or before a reboot: it cannot be seen.
};

/// The state of a run or sweep that has not ended: `running`, `elsewhere`,
/// `lost`.
const char* name_of(driver_presence x) noexcept;

/// What a run's folder says about it.
struct found_run {
  using time_point = std::chrono::system_clock::time_point;

  fs::path path;
  std::string name; ///< `shown_name` of the folder.
  std::optional<run_description> description;
  std::optional<saved_run> state;
  std::optional<process_identity> driver; ///< Who has or had the claim.
  driver_presence presence = driver_presence::gone;
  std::uint64_t reports = 0; ///< Complete ones.
  std::size_t world_size = 0;
  metrics last_metrics; ///< Rank 0's of the last report.
  std::optional<time_point> begun;
  std::optional<time_point> last_entry;
  std::vector<error> problems; ///< What could not be read.

  /// `running`, `finished`, `errored`, `aborted`, `preempted`; `lost`: its
  /// driver died; `elsewhere`: it runs, or ran, where it cannot be seen;
  /// `unreadable`: `state.json` cannot be read.
  std::string state_name() const;

  /// From the first entry to the last, or to now if it runs.
  std::optional<double> seconds() const;

  std::uint64_t attempts() const;
};

/// How often the files of a driver elsewhere are looked at: the kernel does not
/// announce what another host writes.
constexpr std::chrono::milliseconds elsewhere_interval{2000};

/// Whether *x*, the driver of a run or a sweep, has not ended.
driver_presence presence_of(const process_identity& x);

/// Reads the run in *path*. What cannot be read is a problem of the result. No
/// metrics of checkpoints are read but those that a score ranks.
found_run read_run(const fs::path& path);

/// Whether the run has no driver that could answer requests.
bool has_ended(const found_run& run);

/// Becomes readable when the driver ends; empty if it is not a live process of
/// this host.
internal::unique_fd open_driver(const found_run& run);

/// Asks the driver of the run in *path* to end it. Returns whom it asked;
/// `ec::conflict`: there is none.
expected<process_identity> ask_to_end(const fs::path& path,
                                      internal::end_kind how);

/// The error of such requests: the *what*, "run" or "sweep", in *path* has no
/// driver, since it is in *state*.
tl::unexpected<error> refuse_without_driver(std::string_view what,
                                            const fs::path& path,
                                            std::string_view state);

/// The color of a state's name.
color color_of(const std::string& state);

/// The run as JSON; names are stable.
json_object to_json(const found_run& x);

/// One entry of a list of problems, and the list.
json_object to_json(const error& x);
json_object to_json(const std::vector<error>& all);

/// The driver of a run or a sweep.
json_object to_json(const process_identity& x);

} // namespace troupe::tool
