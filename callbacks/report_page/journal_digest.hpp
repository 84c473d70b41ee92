#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "troupe/callbacks/report_page/curve.hpp"
#include "troupe/runtime/values/journal_entry.hpp"

namespace troupe::internal {

/// What a report page keeps of a run's journal. Its size does not grow with the
/// number of reports, but for some bytes per checkpoint and attempt.
struct journal_digest {
  using time_point = std::chrono::system_clock::time_point;
  using curve_map = std::map<std::string, curve, std::less<>>;

  /// Most curves of reports, and of what the loop logged; names that come later
  /// are left out.
  static constexpr std::size_t max_curves = 500;
  /// With more ranks than these, none has a curve of its own.
  static constexpr std::size_t max_rank_curves = 8;
  /// Most texts, params and events that are kept, of each; texts and params
  /// that come later are left out.
  static constexpr std::size_t max_notes = 200;

  struct attempt {
    std::uint64_t number = 0;
    time_point time;                ///< When it began.
    std::uint64_t first_report = 0; ///< Index of its first report.
    std::string resume;             ///< Checkpoint it resumed from, or empty.
    std::uint64_t reports = 0;
    std::string failure; ///< Why it ended before its loops did, or empty.
  };

  struct checkpoint {
    std::string name;
    std::uint64_t index = 0; ///< Report index.
    std::uint64_t attempt = 0;
    time_point time;
    double seconds = 0; ///< That committing it took; 0: not known.
  };

  /// Seconds per report of one rank.
  struct rank_times {
    std::uint64_t reports = 0;
    double sum = 0;
    double max = 0;
    double last = 0;
  };

  struct run_end {
    std::string status;
    std::string error; ///< Empty: none.
    time_point time;
  };

  void add(const journal_entry& x);

  /// Notes a line that could not be read.
  void add_damage(std::string complaint);

  /// Seconds from the first entry to *x*.
  double seconds_at(time_point x) const;

  curve_map reported; ///< Metrics of reports over the report index.
  curve_map logged;   ///< What the loop logged beside them, over its steps.
  std::set<std::string> left_out; ///< Names without a curve, at most 10,000.
  std::map<std::string, std::string> texts;  ///< The last one of each name.
  std::map<std::string, std::string> params; ///< Settings the loop logged.
  /// Names of texts and params that are not kept, at most 10,000.
  std::set<std::string> unkept;

  curve step_times;            ///< Seconds per report, over all ranks.
  std::vector<curve> of_ranks; ///< The same of each of the first ranks.
  std::vector<rank_times> ranks;
  curve waits;     ///< Seconds that a report waited for the slowest rank.
  curve intervals; ///< Seconds from a report of an attempt to its next.

  std::vector<attempt> attempts;
  std::vector<checkpoint> checkpoints;
  std::deque<journal_event> events; ///< The latest.
  std::uint64_t event_count = 0;
  std::vector<std::string> damages; ///< The first.
  std::uint64_t damage_count = 0;

  std::uint64_t reports = 0;
  std::size_t world_size = 0; ///< Ranks of the last report.
  std::optional<time_point> first_time;
  time_point last_time;
  std::optional<run_end> end; ///< Unless the run continued after it.

private:
  void add_row(const journaled_batch& x);
  void add_event(const journal_event& x);
  void add_logged(const journal_event& x, const metrics& values);
  void add_params(const metrics& values);
  void add_values(const journaled_batch& x);
  void add_times(const journaled_batch& x);
  void add_number(curve_map& curves, const std::string& name,
                  const curve_point& x);
  void add_text(const std::string& name, std::string text);
  /// Keeps *text* as the latest that *all* has for *name*.
  void keep(std::map<std::string, std::string>& all, const std::string& name,
            std::string text);
  void begin_attempt(attempt x);
  std::uint64_t segment() const noexcept { return attempts.size(); }

  std::optional<time_point> last_report_; ///< Of the attempt under way.
};

} // namespace troupe::internal
