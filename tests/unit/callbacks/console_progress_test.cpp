#include "troupe/callbacks/console_progress.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "tests/support/start_time.hpp"
#include "troupe/callbacks/console.hpp"

namespace troupe::internal {
namespace {

using namespace std::chrono_literals;
using test::t0;
using testing::HasSubstr;
using testing::Not;

/// All that can be read from *fd* now; writers write before the call.
std::string read_all(int fd) {
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

metrics thousand_metrics() {
  metrics result;
  for (int i = 0; i < 1000; ++i) {
    auto number = std::to_string(i);
    result["m" + std::string(4 - number.size(), '0') + number] = i;
  }
  return result;
}

/// What a terminal shows after *bytes*: carriage return, erase to the end of
/// the line and newlines are applied. Any other escape stays visible.
std::string screen(const std::string& bytes) {
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

run_status running(std::uint64_t reports = 0) {
  run_status x{
    .state = run_state::running, .world_size = 2, .reports = reports};
  if (reports > 0) {
    x.last_report = reports - 1;
    x.reports_per_second = 2.5;
    x.last_metrics = {{"loss", 0.5}};
  }
  return x;
}

run_summary finished_summary() {
  return {.outcome = run_state::finished,
          .name = "fashion",
          .reports = 3,
          .attempts = 1,
          .elapsed_s = 65,
          .last_metrics = {{"loss", 0.25}},
          .best_checkpoint = "/runs/fashion/checkpoints/best",
          .path = "/runs/fashion"};
}

constexpr auto finished_text =
  "fashion finished: 3 reports in 1 attempt, 1:05\n"
  "  last metrics: loss=0.25\n"
  "  best checkpoint: "
  "/runs/fashion/checkpoints/best\n"
  "  files: /runs/fashion\n";

class live_progress_test : public testing::Test {
protected:
  console_progress::options options() {
    return {console_style::live, terminal.terminal, terminal.terminal};
  }

  void SetUp() override {
    if (!terminal.why_not.empty())
      GTEST_SKIP() << terminal.why_not;
  }

  pty_pair terminal;
  console_progress progress{options()};
};

TEST_F(live_progress_test, keeps_one_line_up_to_date) {
  progress.update(running(), t0);
  EXPECT_EQ(screen(terminal.seen()),
            "running, attempt 0, 2 ranks | 0 reports | 0.0 s");
  progress.update(running(1), t0 + 1s);
  auto bytes = terminal.seen();
  EXPECT_EQ(screen(bytes), "running, attempt 0, 2 ranks | 1 report | 0.0 s | "
                           "loss=0.5");
  EXPECT_THAT(bytes, Not(HasSubstr("\n")));
}

TEST_F(live_progress_test, redraws_at_most_ten_times_a_second) {
  progress.update(running(1), t0);
  terminal.seen();
  for (std::uint64_t i = 2; i < 100; ++i)
    progress.update(running(i), t0 + 1ms * i);
  EXPECT_EQ(terminal.seen(), "");
  progress.tick(t0 + 100ms);
  EXPECT_THAT(terminal.seen(), HasSubstr("99 reports"));
}

TEST_F(live_progress_test, shows_a_change_of_state_at_once) {
  progress.update(running(1), t0);
  auto status = running(1);
  status.state = run_state::restarting;
  status.attempt = 1;
  progress.update(status, t0 + 1ms);
  EXPECT_THAT(terminal.seen(), HasSubstr("restarting, attempt 1, 2 ranks"));
}

TEST_F(live_progress_test, advances_the_elapsed_time_with_each_tick) {
  auto status = running();
  status.elapsed_s = 60;
  progress.update(status, t0);
  progress.tick(t0 + 7s);
  EXPECT_THAT(screen(terminal.seen()), HasSubstr("| 1:07"));
}

TEST_F(live_progress_test, shows_how_far_the_epoch_is) {
  auto status = running();
  status.progress = epoch_progress{1, 120, 234, 80};
  progress.update(status, t0);
  EXPECT_THAT(screen(terminal.seen()),
              HasSubstr("| epoch 1: 120/234, 1:20 left"));
}

TEST_F(live_progress_test, output_of_rank_0_goes_above_the_line) {
  progress.update(running(), t0);
  auto line = screen(terminal.seen());
  progress.print("epoch 0\nepo");
  progress.print("ch 1\n");
  progress.print("half a line");
  EXPECT_EQ(screen("\r" + line + terminal.seen()), "epoch 0\nepoch 1\n" + line);
  progress.finish(finished_summary(), t0 + 1s);
  EXPECT_EQ(screen(terminal.seen()),
            std::string{"half a line\n"} + finished_text);
}

TEST_F(live_progress_test, does_not_hold_endless_lines_back) {
  progress.update(running(), t0);
  terminal.seen();
  std::string piece(console_progress::max_partial_line, 'x');
  progress.print(piece);
  EXPECT_EQ(terminal.seen(), "");
  // A thread reads meanwhile: a terminal holds only 4 KiB.
  std::string seen;
  std::thread writer{[&] { progress.print("x"); }};
  while (seen.find("xx\n") == std::string::npos)
    seen += terminal.seen();
  writer.join();
  EXPECT_THAT(screen(seen + terminal.seen()), HasSubstr(piece + "x\nrunning"));
}

TEST_F(live_progress_test, fits_the_line_to_the_width_of_the_terminal) {
  auto status = running(1);
  status.last_metrics = {{"größe", std::string(200, 'x')}};
  progress.update(status, t0);
  auto line = screen(terminal.seen());
  EXPECT_EQ(display_width(line), 79);
  EXPECT_TRUE(line.ends_with("…"));
  terminal.resize(20);
  progress.tick(t0 + 1s);
  EXPECT_EQ(screen(terminal.seen()), "running, attempt 0…");
  terminal.resize(0); // a terminal that does not report its size
  progress.tick(t0 + 2s);
  EXPECT_EQ(display_width(screen(terminal.seen())), 79);
}

TEST_F(live_progress_test, says_how_many_metrics_do_not_fit) {
  auto status = running(1);
  status.last_metrics = thousand_metrics();
  progress.update(status, t0);
  auto line = screen(terminal.seen());
  EXPECT_LE(display_width(line), 79);
  EXPECT_THAT(line, HasSubstr("m0000=0"));
  EXPECT_THAT(line, testing::MatchesRegex(".* \\+ 99[0-9] more"));
}

TEST_F(live_progress_test, no_metric_can_move_the_cursor) {
  auto status = running(1);
  status.last_metrics = {{"note", "a\x1b[2Jb\nc\rd"}};
  progress.update(status, t0);
  EXPECT_THAT(screen(terminal.seen()), HasSubstr("note=a?[2Jb c?d"));
}

TEST_F(live_progress_test, leaves_a_clean_terminal_behind) {
  {
    console_progress abandoned{options()};
    abandoned.update(running(), t0);
    abandoned.print("rest");
  }
  EXPECT_EQ(screen(terminal.seen()), "rest\n");
}

TEST_F(live_progress_test, shows_nothing_of_the_run_after_the_summary) {
  progress.update(running(), t0);
  terminal.seen();
  progress.finish(finished_summary(), t0);
  EXPECT_EQ(screen(terminal.seen()), finished_text);
  progress.update(running(9), t0 + 1s);
  progress.tick(t0 + 2s);
  progress.finish(finished_summary(), t0 + 3s);
  EXPECT_EQ(terminal.seen(), "");
  progress.print("late output");
  EXPECT_EQ(terminal.seen(), "late output");
}

TEST_F(live_progress_test, puts_a_warning_on_its_own_line) {
  progress.update(running(), t0);
  auto line = screen(terminal.seen());
  progress.note("report 3: rank 1 is missing for 30 s, rank 0 waits");
  EXPECT_EQ(screen("\r" + line + terminal.seen()),
            "troupe: report 3: rank 1 is missing for 30 s, rank 0 waits\n"
              + line);
}

TEST_F(live_progress_test, does_not_wait_for_a_stopped_terminal) {
  progress.update(running(), t0);
  terminal.seen();
  ASSERT_EQ(tcflow(terminal.terminal, TCOOFF), 0); // Ctrl-S
  for (int i = 1; i < 1000; ++i)
    progress.tick(t0 + 1s * i);
  ASSERT_EQ(tcflow(terminal.terminal, TCOON), 0);
  progress.tick(t0 + 2000s);
  EXPECT_THAT(screen(terminal.seen()), HasSubstr("33:20"));
}

class plain_progress_test : public testing::Test {
protected:
  pipe_pair log;
  console_progress progress{{console_style::automatic, log.writer, log.writer}};
};

TEST_F(plain_progress_test, shows_a_thousand_metrics_on_one_line) {
  auto status = running(1);
  status.last_metrics = thousand_metrics();
  progress.update(status, t0);
  auto text = log.seen();
  EXPECT_LE(text.size(), 2u * console_progress::line_columns);
  EXPECT_THAT(text, testing::ContainsRegex("m0000=0 .* \\+ 98[0-9] more\n"));
}

TEST_F(plain_progress_test, shows_the_beginning_of_long_texts) {
  auto status = running(1);
  status.last_metrics = {{"sample", std::string(1'000'000, 'x')}};
  progress.update(status, t0);
  EXPECT_LE(log.seen().size(), 2u * console_progress::line_columns);
}

TEST_F(plain_progress_test, shows_no_report_of_a_resumed_run_before_its_first) {
  auto status = running(5);
  status.last_report.reset();
  status.reports_per_second = 0;
  progress.update(status, t0);
  EXPECT_EQ(log.seen(), "troupe: running, attempt 0, 2 ranks\n");
}

TEST_F(plain_progress_test, is_chosen_without_a_terminal) {
  EXPECT_EQ(progress.style(), console_style::plain);
}

TEST_F(plain_progress_test, writes_one_line_per_change_of_state) {
  run_status status;
  progress.update(status, t0);
  progress.update(status, t0 + 1s);
  status.state = run_state::scheduling;
  status.world_size = 2;
  progress.update(status, t0 + 1s);
  status.state = run_state::running;
  progress.update(status, t0 + 2s);
  status.state = run_state::restarting;
  status.attempt = 1;
  progress.update(status, t0 + 2s);
  progress.tick(t0 + 20s);
  EXPECT_EQ(log.seen(), "troupe: initializing\n"
                        "troupe: scheduling, attempt 0, 2 ranks\n"
                        "troupe: running, attempt 0, 2 ranks\n"
                        "troupe: restarting, attempt 1, 2 ranks\n");
}

TEST_F(plain_progress_test, writes_at_most_one_report_a_second_and_the_last) {
  progress.update(running(), t0);
  log.seen();
  for (std::uint64_t i = 1; i <= 50; ++i)
    progress.update(running(i), t0 + 1ms * i);
  EXPECT_EQ(log.seen(), "troupe: report 0, 0.0 s: loss=0.5\n");
  progress.tick(t0 + 1001ms);
  EXPECT_EQ(log.seen(), "troupe: report 49, 0.0 s: loss=0.5\n");
  progress.tick(t0 + 10s);
  EXPECT_EQ(log.seen(), "");
  progress.update(running(51), t0 + 10s);
  progress.update(running(52), t0 + 10s);
  log.seen();
  auto down = running(52);
  down.state = run_state::shutting_down;
  progress.update(down, t0 + 10s);
  EXPECT_EQ(log.seen(), "troupe: report 51, 0.0 s: loss=0.5\n"
                        "troupe: shutting down, attempt 0, 2 ranks\n");
}

TEST_F(plain_progress_test, writes_about_a_long_epoch_every_ten_seconds) {
  progress.update(running(1), t0);
  log.seen();
  auto status = running(1);
  status.progress = epoch_progress{1, 12, 20, 8};
  progress.update(status, t0 + 9s);
  EXPECT_EQ(log.seen(), "");
  progress.tick(t0 + 10s);
  EXPECT_EQ(log.seen(), "troupe: epoch 1: 12/20, 8.0 s left\n");
  progress.tick(t0 + 30s); // the rank has not finished another batch
  EXPECT_EQ(log.seen(), "");
  status.progress = epoch_progress{1, 13, 20, 7};
  progress.update(status, t0 + 31s);
  EXPECT_EQ(log.seen(), "troupe: epoch 1: 13/20, 7.0 s left\n");
}

TEST_F(plain_progress_test, writes_a_last_report_that_was_held_back) {
  progress.update(running(1), t0);
  progress.update(running(2), t0 + 1ms);
  log.seen();
  progress.finish(finished_summary(), t0 + 2ms);
  EXPECT_EQ(log.seen(),
            std::string{"troupe: report 1, 0.0 s: loss=0.5\n"} + finished_text);
}

TEST_F(plain_progress_test, has_no_escapes_and_whole_lines_of_output_only) {
  progress.update(running(), t0);
  progress.print("half");
  progress.update(running(1), t0 + 1s);
  progress.print(" done\n");
  EXPECT_EQ(log.seen(), "troupe: running, attempt 0, 2 ranks\n"
                        "troupe: report 0, 0.0 s: loss=0.5\n"
                        "half done\n");
}

TEST(console_progress_test, quiet_shows_nothing_at_all) {
  pipe_pair log;
  {
    console_progress progress{{console_style::quiet, log.writer, log.writer}};
    progress.update(running(1), t0);
    progress.tick(t0 + 5s);
    progress.print("output\nmore");
    progress.note("a warning");
    progress.finish(finished_summary(), t0 + 6s);
    progress.print("late\n");
  }
  EXPECT_EQ(log.seen(), "");
}

TEST(console_progress_test, sends_progress_and_output_to_their_own_places) {
  pty_pair terminal;
  if (!terminal.why_not.empty())
    GTEST_SKIP() << terminal.why_not;
  pipe_pair output;
  console_progress progress{
    {console_style::live, terminal.terminal, output.writer}};
  progress.update(running(), t0);
  progress.print("epoch 0\n");
  EXPECT_EQ(output.seen(), "epoch 0\n");
  EXPECT_EQ(screen(terminal.seen()),
            "running, attempt 0, 2 ranks | 0 reports | 0.0 s");
}

TEST(console_progress_test, is_live_on_a_terminal_that_can_redraw) {
  pty_pair terminal;
  if (!terminal.why_not.empty())
    GTEST_SKIP() << terminal.why_not;
  std::string before = getenv("TERM") ? getenv("TERM") : "";
  setenv("TERM", "xterm", 1);
  EXPECT_EQ(console_progress({.progress_fd = terminal.terminal}).style(),
            console_style::live);
  setenv("TERM", "dumb", 1);
  EXPECT_EQ(console_progress({.progress_fd = terminal.terminal}).style(),
            console_style::plain);
  unsetenv("TERM");
  EXPECT_EQ(console_progress({.progress_fd = terminal.terminal}).style(),
            console_style::plain);
  if (!before.empty())
    setenv("TERM", before.c_str(), 1);
}

TEST(console_progress_test, ignores_a_closed_console) {
  pipe_pair log;
  close(log.reader);
  log.reader = -1;
  console_progress progress{{console_style::plain, log.writer, log.writer}};
  progress.update(running(1), t0); // would be a deadly SIGPIPE
  progress.print("output\n");
  progress.finish(finished_summary(), t0);
  sigset_t pending;
  sigpending(&pending);
  EXPECT_EQ(sigismember(&pending, SIGPIPE), 0);
}

TEST(console_progress_test, waits_for_room_on_a_console_that_does_not_block) {
  pipe_pair log;
  ASSERT_EQ(fcntl(log.writer, F_SETFL, O_NONBLOCK), 0);
  std::string text(1 << 20, 'x');
  std::thread writer{[&] { write_console(log.writer, text); }};
  std::string seen;
  while (seen.size() < text.size())
    seen += log.seen();
  writer.join();
  EXPECT_EQ(seen, text);
}

TEST(console_progress_test, drops_what_a_full_console_does_not_take) {
  pipe_pair log;
  log.fill_up();
  console_progress console{{console_style::plain, log.writer, log.writer}};
  console.note("lost"); // It returns.
  console.note("lost, too");
  (void) log.seen();
  console.note("room again");
  auto text = log.seen();
  EXPECT_THAT(text, HasSubstr("bytes are missing here"));
  EXPECT_THAT(text, HasSubstr("troupe: room again\n"));
  EXPECT_THAT(text, Not(HasSubstr("lost")));
}

TEST(console_progress_test, writes_only_whole_lines_to_a_full_console) {
  pipe_pair log;
  log.fill_up();
  std::string page(4096, '.');
  ASSERT_EQ(read(log.reader, page.data(), page.size()), 4096); // makes room
  std::string lines;
  for (int i = 0; i < 100; ++i)
    lines += std::string(99, 'x') + '\n';
  auto left = write_console(log.writer, lines, 1ms);
  auto seen = log.seen();
  EXPECT_EQ(left % 100, 0u);
  EXPECT_LT(left, lines.size());
  EXPECT_TRUE(seen.ends_with("x\n"));
}

TEST(console_progress_test,
     output_waits_for_a_full_console_and_blocks_no_other_call) {
  pipe_pair output, log;
  output.fill_up();
  console_progress console{{console_style::plain, log.writer, output.writer}};
  std::thread printer{[&] { console.print("from rank 0\n"); }};
  console.note("meanwhile"); // It returns.
  EXPECT_EQ(log.seen(), "troupe: meanwhile\n");
  // Reading makes room.
  std::string text;
  while (text.find("from rank 0") == std::string::npos)
    text += output.seen();
  printer.join();
  output.fill_up();
  console.hurry();
  console.print("lost\n"); // It returns.
  EXPECT_THAT(output.seen(), Not(HasSubstr("lost")));
}

TEST(console_progress_test, threads_may_push_and_print_at_once) {
  pipe_pair log;
  std::string seen;
  console_progress progress{{console_style::live, log.writer, log.writer}};
  std::thread printer{[&] {
    for (int i = 0; i < 500; ++i)
      progress.print("line " + std::to_string(i) + "\n");
  }};
  std::thread pusher{[&] {
    for (std::uint64_t i = 0; i < 500; ++i)
      progress.update(running(i), t0 + 200ms * i);
    progress.note("done");
  }};
  while (seen.find("line 499\n") == std::string::npos
         || seen.find("done\n") == std::string::npos)
    seen += log.seen();
  printer.join();
  pusher.join();
  auto shown = screen(seen + log.seen());
  for (int i = 0; i < 500; ++i)
    EXPECT_THAT("\n" + shown, HasSubstr("\nline " + std::to_string(i) + "\n"));
}

} // namespace
} // namespace troupe::internal
