#pragma once

#include <chrono>
#include <cstddef>
#include <string_view>

namespace troupe {

/// Whether *fd* is a terminal on which a line can be redrawn.
bool is_live_terminal(int fd);

/// Columns of the terminal *fd* now; 80 if it does not tell.
int terminal_columns(int fd);

/// Whether a write to *fd* would not wait, as it would on a terminal whose user
/// has pressed Ctrl-S.
bool is_writable_now(int fd);

/// Waits until a write to *fd* would not wait, or would fail, at most *limit*;
/// whether that is so.
bool wait_for_room(int fd, std::chrono::milliseconds limit);

/// How long a console may take nothing before text for it is left out: whoever
/// prints may be the one who has to obey signals.
inline constexpr std::chrono::milliseconds console_patience{1000};

/// Writes *text*, as long as the console takes some of it within each
/// *patience*, at most ten times as long. Returns how many bytes are left; a
/// pipe gets whole lines, but for those longer than `PIPE_BUF`. A console that
/// is gone is ignored, without a SIGPIPE.
std::size_t
write_console(int fd, std::string_view text,
              std::chrono::milliseconds patience = console_patience);

} // namespace troupe
