#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "troupe/callbacks/console.hpp"
#include "troupe/callbacks/console_progress.hpp"
#include "troupe/runtime/sweep/sweep_result.hpp"

namespace troupe::internal {

/// A table of the trials under way, at most *rows* of them, and a line about
/// all of them; each line ends with a newline and fits into *columns*.
std::string table_text(const sweep_status& x, int columns, std::size_t rows);

/// How many trials there are in which state, and the best one.
std::string totals_text(const sweep_status& x);

/// A trial that has begun, or ended.
std::string trial_text(const trial& x, const std::string& metric);

/// Shows the progress of a sweep: on a terminal as a table that is redrawn,
/// elsewhere as a line for each trial that begins or ends. Its owner calls it
/// on one thread.
class sweep_console {
public:
  explicit sweep_console(console_style style, int fd = 2);
  ~sweep_console() { erase(); }

  sweep_console(const sweep_console&) = delete;
  sweep_console& operator=(const sweep_console&) = delete;

  console_style style() const noexcept { return style_; }

  /// Redraws the table.
  void update(const sweep_status& x);

  /// A line that stays; the table is below it.
  void note(std::string_view line);

  /// The same, however long: it may end with a command for the user.
  void whole_note(std::string_view line);

  /// A note where a table shows nothing of it.
  void log(std::string_view line) {
    if (style_ == console_style::plain)
      note(line);
  }

private:
  void erase();
  void write_line(std::string_view line, int columns);

  console_style style_;
  console_output output_;
  std::size_t drawn_ = 0; // lines on screen
};

} // namespace troupe::internal
