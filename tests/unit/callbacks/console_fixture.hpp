#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "troupe/callbacks/console_progress.hpp"

namespace troupe::internal::test {

/// All that can be read from *fd* now; writers write before the call.
inline std::string read_all(int fd) {
  std::string text;
  for (pollfd entry{fd, POLLIN, 0}; poll(&entry, 1, 0) == 1;) {
    char buffer[4096];
    auto n = read(fd, buffer, sizeof buffer);
    if (n <= 0)
      break;
    text.append(buffer, static_cast<std::size_t>(n));
  }
  return text;
}

/// A pseudo-terminal: the console writes to `terminal`, the test reads what a
/// user would see from `user`.
class pty_pair {
public:
  explicit pty_pair(unsigned short columns = 80) {
    winsize size{};
    size.ws_col = columns;
    size.ws_row = 24;
    if (openpty(&user, &terminal, nullptr, nullptr, &size) != 0) {
      why_not = std::string{"no pseudo-terminal: "} + std::strerror(errno);
      return;
    }
    termios mode{};
    tcgetattr(terminal, &mode);
    mode.c_oflag &= ~static_cast<tcflag_t>(OPOST); // newlines stay as they are
    tcsetattr(terminal, TCSANOW, &mode);
  }

  ~pty_pair() {
    close(user);
    close(terminal);
  }

  pty_pair(const pty_pair&) = delete;
  pty_pair& operator=(const pty_pair&) = delete;

  void resize(unsigned short columns) {
    winsize size{};
    size.ws_col = columns;
    size.ws_row = 24;
    EXPECT_EQ(ioctl(terminal, TIOCSWINSZ, &size), 0);
  }

  std::string seen() { return read_all(user); }

  int user = -1;
  int terminal = -1;
  std::string why_not; ///< Not empty: a container without /dev/pts, say.
};

class pipe_pair {
public:
  pipe_pair() {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    reader = ends[0];
    writer = ends[1];
  }

  ~pipe_pair() {
    close(reader);
    close(writer);
  }

  pipe_pair(const pipe_pair&) = delete;
  pipe_pair& operator=(const pipe_pair&) = delete;

  std::string seen() { return read_all(reader); }

  /// Leaves no room.
  void fill_up() {
    fcntl(writer, F_SETFL, O_NONBLOCK);
    std::string block(4096, '.');
    while (write(writer, block.data(), block.size()) > 0) {
    }
    fcntl(writer, F_SETFL, 0);
  }

  int reader = -1;
  int writer = -1;
};

inline metrics thousand_metrics() {
  metrics result;
  for (int i = 0; i < 1000; ++i) {
    auto number = std::to_string(i);
    result["m" + std::string(4 - number.size(), '0') + number] = i;
  }
  return result;
}

/// What a terminal shows after *bytes*: carriage return, erase to the end of
/// the line and newlines are applied. Any other escape stays visible.
inline std::string screen(const std::string& bytes) {
  std::vector<std::string> lines{""};
  std::size_t column = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == '\r') {
      column = 0;
    } else if (bytes[i] == '\n') {
      lines.emplace_back();
      column = 0;
    } else if (bytes.compare(i, 3, "\x1b[K") == 0) {
      lines.back().resize(column);
      i += 2;
    } else {
      auto& line = lines.back();
      line.resize(std::max(line.size(), column + 1), ' ');
      line[column++] = bytes[i];
    }
  }
  std::string text;
  for (auto& line : lines)
    text += (text.empty() && &line == &lines.front() ? "" : "\n") + line;
  return text;
}

inline run_status running(std::uint64_t reports = 0) {
  run_status x{
    .state = run_state::running, .world_size = 2, .reports = reports};
  if (reports > 0) {
    x.last_report = reports - 1;
    x.reports_per_second = 2.5;
    x.last_metrics = {{"loss", 0.5}};
  }
  return x;
}

inline run_summary finished_summary() {
  return {.outcome = run_state::finished,
          .name = "fashion",
          .reports = 3,
          .attempts = 1,
          .elapsed_s = 65,
          .last_metrics = {{"loss", 0.25}},
          .best_checkpoint = "/runs/fashion/checkpoints/best",
          .path = "/runs/fashion"};
}

inline constexpr auto finished_text =
  "fashion finished: 3 reports in 1 attempt, 1:05\n"
  "  last metrics: loss=0.25\n"
  "  best checkpoint: "
  "/runs/fashion/checkpoints/best\n"
  "  files: /runs/fashion\n";

} // namespace troupe::internal::test
