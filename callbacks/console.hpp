#pragma once

#include <string_view>

namespace troupe {

/// Whether *fd* is a terminal on which a line can be redrawn.
bool is_live_terminal(int fd);

/// Columns of the terminal *fd* now; 80 if it does not tell.
int terminal_columns(int fd);

/// Whether a write to *fd* would not wait, as it would on a terminal whose user
/// has pressed Ctrl-S.
bool is_writable_now(int fd);

/// Writes all of *text*. A console that is gone is ignored, without a SIGPIPE.
void write_console(int fd, std::string_view text);

} // namespace troupe
