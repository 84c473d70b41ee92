#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace troupe::internal {

/// Whether *fd* is a terminal that can redraw a line and show colors: TERM is
/// set, and not to `dumb`.
bool is_live_terminal(int fd);

/// Current columns of the terminal *fd*; 80 if unknown.
int terminal_columns(int fd);

/// Whether a write to *fd* would not block, as it would on a terminal stopped
/// by Ctrl-S.
bool is_writable_now(int fd);

/// Waits up to *limit* until a write to *fd* would succeed or fail at once.
/// Returns whether it would.
bool wait_for_room(int fd, std::chrono::milliseconds limit);

/// How long a console may block before text is dropped: the thread that prints
/// may also have to handle signals.
inline constexpr std::chrono::milliseconds console_patience{1000};

/// Writes *text* while the console takes some of it within each *patience*, but
/// for at most ten times as long. Returns the number of bytes left. A pipe gets
/// whole lines, unless they are longer than `PIPE_BUF`. A closed console is
/// ignored, without SIGPIPE.
std::size_t
write_console(int fd, std::string_view text,
              std::chrono::milliseconds patience = console_patience);

/// A console that may be blocked. What it does not take is left out, from then
/// on without waiting; the next text that it takes says how much that was.
struct console_output {
  int fd = -1;
  std::size_t left_out = 0; ///< Bytes, since the last successful write.

  void write(std::string_view text);
};

/// Columns of *text* (UTF-8) on a terminal: wide characters take two, combining
/// ones none.
int display_width(std::string_view text);

/// *text* on one line of at most *columns* columns: control characters and
/// invalid UTF-8 become '?', newlines a space. Longer text is cut between
/// characters and ends in "…".
std::string fit_to_line(std::string_view text, int columns);

} // namespace troupe::internal
