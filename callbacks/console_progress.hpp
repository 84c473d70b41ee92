#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "troupe/callbacks/console.hpp"
#include "troupe/callbacks/status_text.hpp"
#include "troupe/runtime/values/run_status.hpp"

namespace troupe::internal {

/// How progress is shown.
enum class console_style {
  automatic, ///< `live` on a terminal, `plain` elsewhere.
  live,      ///< One line that is redrawn.
  plain,     ///< A line per change of state; at most one report a second, and
             ///< one about the epoch every ten seconds.
  quiet,     ///< Nothing.
};

/// Shows the progress of a run on the console together with rank 0's output,
/// without mixing the two.
///
/// Has no thread and no clock: its owner pushes each status and regular ticks.
/// Any thread may call; a closed console is ignored.
class console_progress {
public:
  using time_point = std::chrono::steady_clock::time_point;

  struct options {
    console_style style = console_style::automatic;
    int progress_fd = 2; ///< Where the progress and the summary go.
    int output_fd = 1;   ///< Where rank 0's output goes.
  };

  /// Between two redraws of the live line: smooth to the eye and cheap, however
  /// fast the reports are.
  static constexpr auto redraw_interval = std::chrono::milliseconds{100};

  /// Between two lines about reports in a log.
  static constexpr auto report_interval = std::chrono::seconds{1};

  /// Between two lines about an epoch under way in a log.
  static constexpr auto progress_interval = std::chrono::seconds{10};

  /// Columns of a line about a report in a log.
  static constexpr int line_columns = 160;

  /// Longest incomplete line of output that is held back.
  static constexpr std::size_t max_partial_line = 4096;

  explicit console_progress(options opts);

  /// Erases the live line and writes what is held back.
  ~console_progress();

  console_progress(const console_progress&) = delete;
  console_progress& operator=(const console_progress&) = delete;

  /// Shows *status*, the current one.
  void update(const run_status& status, time_point now);

  /// Advances the elapsed time and shows what was throttled. Call it about
  /// every 200 ms.
  void tick(time_point now);

  /// Prints output of rank 0, in any pieces. Whole lines are written at once;
  /// the rest waits for its newline, for `finish` or for `max_partial_line`.
  /// Waits for a console that has no room, without blocking other calls.
  void print(std::string_view text);

  /// From now on `print` waits no longer than the other calls, which drop text
  /// if the console blocks for `console_patience`.
  void hurry() noexcept { hurried_ = true; }

  /// Shows a warning of the run on its own line.
  void note(std::string_view line);

  /// Ends the progress with a summary. Later calls show only output.
  void finish(const run_summary& summary, time_point now);

  /// Whether `finish` was called: the summary says why a run failed.
  bool is_finished();

  /// The style in use; never `automatic`.
  console_style style() const noexcept { return style_; }

private:
  void show(time_point now);
  void show_live(time_point now);
  void show_plain(time_point now, bool all);
  void show_epoch(time_point now);
  void draw();
  void erase();
  void write_line(std::string_view text);
  void flush_partial();

  std::mutex mutex_;
  console_output progress_;
  console_output output_;
  console_style style_;
  std::optional<run_status> status_; // the last one pushed
  time_point status_time_{};
  std::optional<run_status> shown_; // on the console
  time_point shown_time_{};
  std::optional<time_point> reported_at_; // the last line about a report
  time_point epoch_shown_at_{};           // the last line about an epoch
  std::string line_;                      // the live line, not yet cut
  bool drawn_ = false;                    // the live line is on screen
  std::string partial_;                   // rank 0's output without its newline
  bool finished_ = false;
  std::atomic<bool> hurried_{false};
};

} // namespace troupe::internal
