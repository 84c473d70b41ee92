#include "troupe/callbacks/console.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <utility>

#include "troupe/runtime/process/would_block.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// Keeps a SIGPIPE that a write of this thread causes from being delivered.
class sigpipe_guard {
public:
  sigpipe_guard() {
    sigemptyset(&sigpipe_);
    sigaddset(&sigpipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    if (!was_pending_)
      pthread_sigmask(SIG_BLOCK, &sigpipe_, &old_);
  }

  ~sigpipe_guard() {
    if (was_pending_)
      return;
    timespec no_wait{};
    while (sigtimedwait(&sigpipe_, nullptr, &no_wait) == -1 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &old_, nullptr);
  }

  sigpipe_guard(const sigpipe_guard&) = delete;
  sigpipe_guard& operator=(const sigpipe_guard&) = delete;

private:
  sigset_t sigpipe_;
  sigset_t old_;
  bool was_pending_ = false;
};

/// The first piece of *text* to write: whole lines of at most `PIPE_BUF` bytes,
/// which a console that has room takes without blocking; a longer line is cut.
std::string_view piece_of(std::string_view text) {
  if (text.size() <= PIPE_BUF)
    return text;
  auto end = text.rfind('\n', PIPE_BUF - 1);
  return text.substr(0, end == text.npos ? PIPE_BUF : end + 1);
}

struct range {
  char32_t first;
  char32_t last;
};

template <std::size_t N>
bool in_any(const std::array<range, N>& ranges, char32_t code) {
  return std::ranges::any_of(ranges, [code](const range& x) {
    return code >= x.first && code <= x.last;
  });
}

// The blocks that matter on terminals, not all of Unicode: combining marks,
// joiners and variation selectors; East Asian wide forms and emoji.
constexpr std::array<range, 8> zero_width{{{0x0300, 0x036F},
                                           {0x0483, 0x0489},
                                           {0x0591, 0x05BD},
                                           {0x1AB0, 0x1AFF},
                                           {0x200B, 0x200F},
                                           {0x20D0, 0x20FF},
                                           {0xFE00, 0xFE0F},
                                           {0xFE20, 0xFE2F}}};
constexpr std::array<range, 9> double_width{{{0x1100, 0x115F},
                                             {0x2E80, 0x303E},
                                             {0x3041, 0xA4CF},
                                             {0xAC00, 0xD7A3},
                                             {0xF900, 0xFAFF},
                                             {0xFF00, 0xFF60},
                                             {0xFFE0, 0xFFE6},
                                             {0x1F300, 0x1FAFF},
                                             {0x20000, 0x3FFFD}}};

bool is_control(char32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x2028
         || code == 0x2029 || (code >= 0x202A && code <= 0x202E);
}

int width_of(const utf8_character& x) {
  if (!x.valid || is_control(x.code))
    return 1; // shown as '?' or a space
  if (in_any(zero_width, x.code))
    return 0;
  return in_any(double_width, x.code) ? 2 : 1;
}

std::string_view shown(const utf8_character& x) {
  if (!x.valid)
    return "?";
  if (x.code == '\n' || x.code == '\t')
    return " ";
  return is_control(x.code) ? "?" : x.bytes;
}

} // namespace

bool is_live_terminal(int fd) {
  if (isatty(fd) == 0)
    return false;
  auto* kind = std::getenv("TERM");
  return kind != nullptr && *kind != '\0' && std::string_view{kind} != "dumb";
}

int terminal_columns(int fd) {
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
    return 80;
  return size.ws_col;
}

bool is_writable_now(int fd) {
  pollfd entry{fd, POLLOUT, 0};
  return poll(&entry, 1, 0) == 1 && (entry.revents & POLLOUT) != 0;
}

bool wait_for_room(int fd, std::chrono::milliseconds limit) {
  pollfd entry{fd, POLLOUT, 0};
  // poll ignores a negative descriptor, but a write fails at once.
  return fd < 0 || poll(&entry, 1, static_cast<int>(limit.count())) == 1;
}

std::size_t write_console(int fd, std::string_view text,
                          std::chrono::milliseconds patience) {
  using clock = std::chrono::steady_clock;
  using std::chrono::milliseconds;
  sigpipe_guard guard;
  auto now = clock::now();
  auto end = now + 10 * patience;
  auto give_up = now + patience;
  for (; !text.empty() && now < end; now = clock::now()) {
    auto left = std::chrono::ceil<milliseconds>(std::min(give_up, end) - now);
    if (!wait_for_room(fd, std::max(left, milliseconds{0}))) {
      if (left <= milliseconds{0})
        break;
      continue;
    }
    auto piece = piece_of(text);
    auto written = write(fd, piece.data(), piece.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
      give_up = clock::now() + patience;
    } else if (!is_temporary(errno)) {
      return 0;
    } else if (left <= milliseconds{0}) {
      break;
    }
  }
  return text.size();
}

void console_output::write(std::string_view text) {
  if (left_out > 0 && !is_writable_now(fd)) {
    left_out += text.size();
    return;
  }
  if (auto bytes = std::exchange(left_out, 0); bytes > 0)
    left_out = write_console(
      fd, concat("\ntroupe: ", bytes,
                 " bytes are missing here: the console was blocked\n"));
  left_out += write_console(fd, text);
}

// -- text on a line

int display_width(std::string_view text) {
  int columns = 0;
  while (!text.empty()) {
    auto next = first_utf8_character(text);
    columns += width_of(next);
    text.remove_prefix(next.bytes.size());
  }
  return columns;
}

std::string fit_to_line(std::string_view text, int columns) {
  std::string line;
  int used = 0;
  std::size_t cut = 0; // bytes of the line that leave a column for the dots
  while (!text.empty()) {
    auto next = first_utf8_character(text);
    auto width = width_of(next);
    if (used + width > columns) {
      line.resize(cut);
      return columns > 0 ? line + "…" : line;
    }
    line += shown(next);
    used += width;
    if (used < columns)
      cut = line.size();
    text.remove_prefix(next.bytes.size());
  }
  return line;
}

} // namespace troupe::internal
