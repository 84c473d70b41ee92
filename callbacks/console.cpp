#include "troupe/callbacks/console.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <ctime>

#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace troupe {

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

/// What of *text* goes out at once. A console that has room for anything takes
/// it without a wait, and it ends with a line, unless that is longer.
std::string_view piece_of(std::string_view text) {
  if (text.size() <= PIPE_BUF)
    return text;
  auto end = text.rfind('\n', PIPE_BUF - 1);
  return text.substr(0, end == text.npos ? PIPE_BUF : end + 1);
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
  // poll skips a negative descriptor: the write fails at once.
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
    } else if (errno != EAGAIN && errno != EINTR) {
      return 0;
    } else if (left <= milliseconds{0}) {
      break;
    }
  }
  return text.size();
}

} // namespace troupe
