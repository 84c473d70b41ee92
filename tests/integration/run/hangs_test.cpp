// Ranks that others wait for: who is named, who is ended and who is not.

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/integration/run/run_test.hpp"

namespace troupe::test {

namespace {

using kind = rank_failure::kind_type;

/// A function that the program does not export.
[[gnu::noinline]] void sleeps_forever() {
  for (;;)
    pause();
}

/// How long a rank may show no sign of life in these tests.
constexpr auto short_limit = std::chrono::milliseconds{600};

train_options impatient(run_config config, int workers = 2) {
  train_options options{.scaling = {.num_workers = workers},
                        .run = std::move(config)};
  options.run.hang_timeout = short_limit;
  return options;
}

void stop_rank_1(train_context& context) {
  context.report({{"step", 0}});
  if (context.rank() == 1)
    raise(SIGSTOP);
  context.report({{"step", 1}});
}

void stop_rank_1_at_its_end(train_context& context) {
  context.report({{"step", 0}});
  if (context.rank() == 1)
    raise(SIGSTOP);
}

void stop_all_ranks(train_context& context) {
  context.report({{"step", 0}});
  raise(SIGSTOP);
}

void sleep_in_rank_0(train_context& context) {
  if (context.rank() == 0)
    sleeps_forever();
  context.barrier();
}

/// Uses CPU time of its process for several times the limit.
void compute() {
  timespec now{};
  do {
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  } while (std::chrono::seconds{now.tv_sec}
             + std::chrono::nanoseconds{now.tv_nsec}
           < 3 * short_limit);
}

void compute_in_rank_0(train_context& context) {
  if (context.rank() == 0)
    compute();
  context.barrier();
  context.report({{"done", 1}});
}

/// The program that works for rank 0, which waits for it.
void compute_in_a_child_of_rank_0(train_context& context) {
  if (context.rank() == 0) {
    auto child = fork();
    if (child == 0) {
      compute();
      _exit(0);
    }
    while (waitpid(child, nullptr, 0) != child)
      continue;
  }
  context.barrier();
  context.report({{"done", 1}});
}

} // namespace

TEST_F(run_test, a_stopped_rank_that_others_wait_for_is_ended) {
  auto outcome =
    data_parallel_trainer{stop_rank_1, impatient(config(), 3)}.fit();
  auto& failure = only_failure(outcome, 1);
  EXPECT_EQ(failure.kind, kind::timeout);
  EXPECT_NE(failure.what.find("report 1: rank 1 is missing"), std::string::npos)
    << failure.what;
  EXPECT_NE(failure.what.find("stopped by a signal"), std::string::npos)
    << failure.what;
}

TEST_F(run_test, a_rank_that_is_stopped_after_its_last_report_is_ended) {
  auto outcome =
    data_parallel_trainer{stop_rank_1_at_its_end, impatient(config(), 3)}.fit();
  auto& failure = only_failure(outcome, 1);
  EXPECT_EQ(failure.kind, kind::timeout);
  EXPECT_NE(failure.what.find("stopped by a signal"), std::string::npos)
    << failure.what;
}

TEST_F(run_test, ranks_that_are_stopped_all_together_are_ended) {
  auto outcome =
    data_parallel_trainer{stop_all_ranks, impatient(config())}.fit();
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ec::rank_failed) << outcome.error->message;
  EXPECT_NE(outcome.error->message.find("stopped by a signal"),
            std::string::npos)
    << outcome.error->message;
}

TEST_F(run_test, a_run_resumes_after_a_rank_that_stood_still) {
  auto options = impatient(config());
  options.run.failure.max_failures = 1;
  auto outcome = run({.action = "stop", .rank = 1, .step = 1}, options);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.attempts, 2u);
  EXPECT_EQ(outcome.metrics.at("step"), metric_value{2});
}

TEST_F(run_test, a_rank_that_sleeps_forever_is_ended_and_shows_its_stack) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer holds signals back from waiting threads";
#endif
  auto outcome =
    data_parallel_trainer{sleep_in_rank_0, impatient(config())}.fit();
  auto& failure = only_failure(outcome, 0);
  EXPECT_EQ(failure.kind, kind::timeout);
  EXPECT_NE(failure.what.find("barrier 0: rank 0 is missing"),
            std::string::npos)
    << failure.what;
  EXPECT_NE(failure.what.find("without CPU time or I/O"), std::string::npos)
    << failure.what;
  auto stacks = bytes_of(run_path() / "logs" / "rank_0.stacks");
  EXPECT_NE(stacks.find("sleeps_forever"), std::string::npos) << stacks;
  EXPECT_FALSE(fs::exists(run_path() / "logs" / "rank_1.stacks"));
  auto journal = bytes_of(run_path() / "journal.jsonl");
  EXPECT_NE(journal.find("logs/rank_0.stacks"), std::string::npos);
}

TEST_F(run_test, a_rank_that_computes_is_never_ended_for_it) {
  auto outcome =
    data_parallel_trainer{compute_in_rank_0, impatient(config())}.fit();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.attempts, 1u);
}

TEST_F(run_test, a_rank_whose_child_computes_is_never_ended_for_it) {
  auto outcome =
    data_parallel_trainer{compute_in_a_child_of_rank_0, impatient(config())}
      .fit();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.attempts, 1u);
}

} // namespace troupe::test
