// Ranks that fail: causes are told apart, groups start again, nothing is lost.

#include <unistd.h>

#include <csignal>

#include "tests/integration/run/run_test.hpp"

namespace troupe::test {

using kind = rank_failure::kind_type;

TEST_F(run_test, an_exception_names_its_rank_and_text) {
  auto outcome = run({.action = "throw", .rank = 1, .step = 1});
  auto& failure = only_failure(outcome, 1);
  EXPECT_EQ(failure.kind, kind::exception);
  EXPECT_EQ(failure.what, "the loss is a banana");
  EXPECT_EQ(outcome.status, run_status_kind::errored);
  EXPECT_EQ(outcome.error->code, ec::rank_failed);
  EXPECT_NE(outcome.error->message.find("Rank 1"), std::string::npos)
    << outcome.error->message;
  EXPECT_THROW(outcome.value_or_throw(), run_failed);
}

TEST_F(run_test, an_exception_without_a_text_is_told) {
  auto outcome = run({.action = "throw_number", .rank = 1, .step = 1});
  auto& failure = only_failure(outcome, 1);
  EXPECT_EQ(failure.kind, kind::exception);
  EXPECT_EQ(failure.what, "an exception that is no std::exception");
}

TEST_F(run_test, an_exit_code_is_told) {
  auto outcome = run({.action = "exit", .rank = 0, .step = 1});
  auto& failure = only_failure(outcome, 0);
  EXPECT_EQ(failure.kind, kind::exit_code);
  EXPECT_EQ(failure.code, 3);
}

TEST_F(run_test, a_segmentation_fault_is_told) {
  auto outcome = run({.action = "segfault", .rank = 1, .step = 0});
  auto& failure = only_failure(outcome, 1);
  EXPECT_EQ(failure.kind, kind::signal);
  EXPECT_EQ(failure.code, SIGSEGV);
}

TEST_F(run_test, a_killed_rank_is_told) {
  auto outcome = run({.action = "kill", .rank = 1, .step = 2});
  auto& failure = only_failure(outcome, 1);
  EXPECT_EQ(failure.kind, kind::signal);
  EXPECT_EQ(failure.code, SIGKILL);
  EXPECT_GT(failure.pid, 0);
}

TEST_F(run_test, an_exception_in_a_thread_of_the_loop_is_told) {
  auto outcome = run({.action = "thread_throw", .rank = 0, .step = 1});
  auto& failure = only_failure(outcome, 0);
  EXPECT_EQ(failure.kind, kind::thread_exception);
  EXPECT_NE(failure.what.find("the helper thread fell"), std::string::npos);
}

TEST_F(run_test, what_was_reported_before_a_failure_is_kept) {
  auto outcome = run({.action = "kill", .rank = 1, .step = 2});
  ASSERT_TRUE(outcome.checkpoint);
  EXPECT_EQ(bytes_of(outcome.checkpoint->path() / "step.txt"), "2\n");
  auto rows = outcome.metrics_history();
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->size(), 2u);
}

class restart_test : public run_test,
                     public ::testing::WithParamInterface<const char*> {};

TEST_P(restart_test, a_group_goes_on_from_its_last_checkpoint) {
  auto outcome =
    run({.action = GetParam(), .rank = 1, .step = 2, .steps = 5}, 2, 1);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.attempts, 2u);
  auto rows = outcome.metrics_history();
  ASSERT_TRUE(rows);
  ASSERT_EQ(rows->size(), 5u);
  for (int step = 0; step < 5; ++step) {
    EXPECT_EQ((*rows)[step].index, static_cast<std::uint64_t>(step));
    EXPECT_EQ((*rows)[step].values[0].at("step"), metric_value{step});
    EXPECT_EQ((*rows)[step].attempt, step < 2 ? 0u : 1u);
  }
}

INSTANTIATE_TEST_SUITE_P(causes, restart_test,
                         ::testing::Values("throw", "exit", "segfault", "kill",
                                           "thread_throw"));

TEST_F(run_test, ranks_that_are_killed_together_count_as_one_failure) {
  auto outcome =
    run({.action = "kill", .rank = -1, .step = 2, .steps = 5}, 3, 1);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.attempts, 2u);
  EXPECT_EQ(outcome.metrics.at("step"), metric_value{4});
}

TEST_F(run_test, failures_beyond_the_limit_end_the_run) {
  auto outcome = run(
    {.action = "throw", .rank = 0, .step = 1, .attempt = -1, .steps = 3}, 2, 2);
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.attempts, 3u);
}

TEST_F(run_test, every_rank_that_failed_alike_is_named_in_one_line) {
  auto outcome = run({.action = "throw", .rank = -1, .step = 0}, 3);
  ASSERT_TRUE(outcome.error);
  EXPECT_NE(outcome.error->message.find("the loss is a banana"),
            std::string::npos);
  EXPECT_GE(outcome.error->ranks.size(), 1u);
}

TEST_F(run_test, unequal_numbers_of_reports_name_the_ranks) {
  auto outcome = run({.action = "return", .rank = 1, .step = 1}, 3);
  ASSERT_TRUE(outcome.error);
  auto& text = outcome.error->message;
  EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
  EXPECT_NE(text.find("report 1"), std::string::npos) << text;
}

TEST_F(run_test, a_barrier_that_waits_too_long_names_the_missing_rank) {
  train_options options{.scaling = {.num_workers = 3}, .run = config()};
  options.run.report_timeout = std::chrono::milliseconds{300};
  auto outcome = run({.action = "wait_forever", .rank = 0, .step = 1}, options);
  auto& failure = only_failure(outcome, 0);
  EXPECT_EQ(failure.kind, kind::timeout);
  EXPECT_NE(failure.what.find("rank 0"), std::string::npos) << failure.what;
}

void wait_for_rank_2(train_context& context) {
  if (context.rank() == 2)
    for (;;)
      pause();
  context.barrier();
}

TEST_F(run_test, the_limit_of_a_report_holds_for_a_barrier_too) {
  train_options options{.scaling = {.num_workers = 3}, .run = config()};
  options.run.report_timeout = std::chrono::milliseconds{300};
  auto outcome = data_parallel_trainer{wait_for_rank_2, options}.fit();
  auto& failure = only_failure(outcome, 2);
  EXPECT_EQ(failure.kind, kind::timeout);
  EXPECT_NE(failure.what.find("barrier"), std::string::npos) << failure.what;
  EXPECT_NE(failure.what.find("rank 2"), std::string::npos) << failure.what;
}

TEST_F(run_test, a_file_from_two_ranks_is_refused_with_both_named) {
  auto outcome =
    run({.action = "same_file", .rank = 9, .steps = 1, .checkpoint_by = -2});
  ASSERT_TRUE(outcome.error);
  auto& text = outcome.error->message;
  EXPECT_NE(text.find("model.bin"), std::string::npos) << text;
  EXPECT_FALSE(outcome.checkpoint);
}

TEST_F(run_test, metrics_that_are_too_large_are_refused) {
  auto outcome = run({.action = "huge_metrics", .rank = 0, .step = 1});
  EXPECT_NE(only_failure(outcome, 0).what.find("65536"), std::string::npos);
}

TEST_F(run_test, a_metric_without_a_name_is_refused) {
  auto outcome = run({.action = "empty_name", .rank = 0, .step = 1});
  EXPECT_NE(only_failure(outcome, 0).what.find("empty name"),
            std::string::npos);
}

TEST_F(run_test, an_empty_checkpoint_is_refused) {
  auto outcome = run({.action = "empty_checkpoint", .rank = 0, .step = 1});
  EXPECT_EQ(only_failure(outcome, 0).kind, kind::exception);
}

TEST_F(run_test, a_missing_checkpoint_folder_is_named) {
  auto missing = (storage_ / "nowhere").string();
  auto outcome =
    run({.action = "missing_folder", .rank = 0, .step = 1, .text = missing});
  EXPECT_NE(only_failure(outcome, 0).what.find(missing), std::string::npos);
}

TEST_F(run_test, a_broadcast_that_is_too_large_is_refused) {
  auto outcome = run({.action = "huge_broadcast", .rank = 0, .step = 1});
  EXPECT_NE(only_failure(outcome, 0).what.find("1048576"), std::string::npos);
}

} // namespace troupe::test
