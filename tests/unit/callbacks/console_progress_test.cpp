#include "troupe/callbacks/console_progress.hpp"

#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include "tests/support/start_time.hpp"
#include "tests/unit/callbacks/console_fixture.hpp"
#include "troupe/callbacks/console.hpp"

namespace troupe::internal::test {

namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

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

} // namespace troupe::internal::test
