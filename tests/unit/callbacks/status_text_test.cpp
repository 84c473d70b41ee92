#include "troupe/callbacks/status_text.hpp"

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.hpp"
#include "troupe/runtime/store/result.hpp"

namespace troupe::internal {
namespace {

TEST(elapsed_text_test, formats_seconds_for_people) {
  EXPECT_EQ(elapsed_text(-1), "0.0 s");
  EXPECT_EQ(elapsed_text(4.27), "4.2 s");
  EXPECT_EQ(elapsed_text(59.99), "59.9 s");
  EXPECT_EQ(elapsed_text(65), "1:05");
  EXPECT_EQ(elapsed_text(3599.9), "59:59");
  EXPECT_EQ(elapsed_text(7209), "2:00:09");
}

TEST(report_text_test, shows_a_low_rate_as_a_time) {
  run_status x{.reports = 3, .last_report = 2, .elapsed_s = 65};
  x.reports_per_second = 2.5;
  EXPECT_EQ(report_text(x, 80), "report 2, 2.5/s, 1:05");
  x.reports_per_second = 1 / 408.0;
  EXPECT_EQ(report_text(x, 80), "report 2, one in 6:48, 1:05");
}

TEST(report_text_test, shows_no_rate_in_the_first_second) {
  run_status x{.reports = 60, .last_report = 59, .elapsed_s = 0.9};
  x.reports_per_second = 240;
  EXPECT_EQ(report_text(x, 80), "report 59, 0.9 s");
}

TEST(live_text_test, counts_the_calls_to_callbacks_without_an_answer) {
  run_status x{.state = run_state::running, .reports = 3};
  EXPECT_EQ(live_text(x, 0.5, 80), "running, attempt 0 | 3 reports | 0.5 s");
  x.callback_queue = 2;
  EXPECT_EQ(live_text(x, 0.5, 80), "running, attempt 0 | 3 reports | 0.5 s | 2 "
                                   "unanswered callback calls");
}

TEST(run_summary_test, shows_errors_of_several_lines) {
  run_summary summary{
    .outcome = run_state::errored,
    .name = "fashion",
    .reports = 1,
    .attempts = 2,
    .elapsed_s = 4.2,
    .path = "/runs/fashion",
    .reason = {ec::rank_failed, "Rank 0: bad alloc\nRank 1: exited"}};
  EXPECT_EQ(to_string(summary),
            "fashion errored: 1 report in 2 attempts, 4.2 s\n"
            "  error: Rank 0: bad alloc\n"
            "         Rank 1: exited\n"
            "  files: /runs/fashion\n");
}

TEST(run_summary_test, an_error_cannot_move_the_cursor) {
  run_summary summary{.outcome = run_state::errored,
                      .name = "r",
                      .path = "/r",
                      .reason = {ec::rank_failed, "bad\x1b[2J\r\x7f"}};
  EXPECT_NE(to_string(summary).find("error: bad?[2J??\n"), std::string::npos)
    << to_string(summary);
}

TEST(run_summary_test, summarizes_the_result) {
  test::temporary_folder folder;
  result x;
  x.status = run_status_kind::aborted;
  x.path = folder / "fashion";
  fs::create_directory(x.path);
  x.attempts = 2;
  x.metrics = {{"loss", 0.25}};
  for (auto* name : {"worse", "best"})
    x.best_checkpoints.push_back(
      {checkpoint::from_directory(std::string{"/c/"} + name)});
  x.error = run_error{.code = ec::stopped, .message = "the run was stopped"};
  auto summary = summary_of(x, 7, 3.5);
  EXPECT_EQ(to_string(summary), "fashion aborted: 7 reports in 2 attempts, "
                                "3.5 s\n"
                                "  error: the run was stopped\n"
                                "  last metrics: loss=0.25\n"
                                "  best checkpoint: /c/best\n"
                                "  files: "
                                  + x.path.string() + '\n');
  fs::remove(x.path);
  auto text = to_string(summary_of(x, 7, 3.5));
  EXPECT_EQ(text.find("best checkpoint"), text.npos) << text;
  EXPECT_NE(text.find("fashion, which no longer exists\n"), text.npos) << text;
}

TEST(run_summary_test, a_run_without_checkpoints_names_none) {
  result x;
  x.status = run_status_kind::finished;
  test::temporary_folder folder;
  x.path = folder.path();
  x.attempts = 1;
  EXPECT_EQ(to_string(summary_of(x, 0, 1)),
            x.path.filename().string()
              + " finished: 0 reports in 1 attempt, 1.0 s\n  files: "
              + x.path.string() + '\n');
}

} // namespace
} // namespace troupe::internal
