#include <string>
#include <thread>

#include <gmock/gmock.h>

#include "tests/support/start_time.hpp"
#include "tests/unit/callbacks/console_fixture.hpp"
#include "troupe/callbacks/console.hpp"

namespace troupe::internal::test {

namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

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

} // namespace

} // namespace troupe::internal::test
