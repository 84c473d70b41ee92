// Processes that loops and callbacks fork off.

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <stdexcept>
#include <string>

#include "tests/integration/run/report_hook.hpp"
#include "tests/integration/run/run_test.hpp"
#include "tests/support/checkpoint_files.hpp"
#include "tests/support/sanitized.hpp"

namespace troupe::internal::test {

namespace {

/// Which signal a forked process that waits forever dies of if it gets
/// *signal*.
int end_of_child(int signal) {
  auto child = fork();
  if (child == 0) {
    alarm(60); // SIGALRM, should it outlive the signal
    for (;;)
      pause();
  }
  kill(child, signal);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR)
    continue;
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

void end_child(train_context& context) {
  context.report({{"ended_by", end_of_child(SIGTERM)}});
}

/// Rank 0 forks a process, while it writes a checkpoint, that leaves the loop
/// by the action of *plan*.
void leave_in_child(train_context& context, const fault_plan& plan) {
  if (context.rank() != 0)
    return context.report({{"status", -1}});
  auto files = context.new_checkpoint();
  write_bytes(files.path() / "before", "");
  auto child = fork();
  if (child == 0) {
    if (plan.action == "throw")
      throw std::runtime_error{"not of the rank"};
    if (plan.action == "report")
      context.report({{"status", 100}});
    if (plan.action == "log")
      rank_access{context}.log({"not_of_the_rank", {}});
    return;
  }
  int status = -1;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR)
    continue;
  write_bytes(files.path() / "after", "");
  context.report({{"status", WEXITSTATUS(status)}}, std::move(files));
}

} // namespace

TEST_F(run_test, what_ranks_and_callbacks_fork_off_is_ended_by_sigterm) {
  TROUPE_SKIP_FORKS_UNDER_TSAN();
  auto options = train_options{.scaling = {.num_workers = 2}, .run = config()};
  auto of_callback = -1;
  options.run.callbacks = {
    on_report(0, [&] { of_callback = end_of_child(SIGTERM); })};
  auto outcome = data_parallel_trainer{end_child, options}.fit();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.metrics.at("ended_by"), metric_value{SIGTERM});
  EXPECT_EQ(of_callback, SIGTERM);
}

TEST_F(run_test, a_process_that_a_loop_forked_ends_where_it_leaves_the_loop) {
  TROUPE_SKIP_FORKS_UNDER_TSAN();
  for (std::string action : {"return", "throw", "report", "log"})
    for (auto where : {placement::processes, placement::in_process}) {
      auto name =
        action + (where == placement::processes ? "_process" : "_thread");
      train_options options{.scaling = {.num_workers = 2, .where = where},
                            .run = config(name)};
      auto outcome =
        data_parallel_trainer{leave_in_child, fault_plan{.action = action},
                              options}
          .fit();
      ASSERT_FALSE(outcome.error) << name << ": " << outcome.error->message;
      EXPECT_EQ(outcome.metrics.at("status").number(),
                action == "return" ? 0 : 1)
        << name;
      ASSERT_TRUE(outcome.checkpoint) << name;
      for (auto file : {"before", "after"})
        EXPECT_TRUE(fs::exists(outcome.checkpoint->path() / file)) << name;
      auto run = storage_ / name;
      if (where == placement::processes) {
        auto log = bytes_of(run / "logs/rank_0.log");
        EXPECT_NE(log.find("forked, left the train loop"), std::string::npos)
          << log;
      }
      EXPECT_EQ(bytes_of(run / "journal.jsonl").find("not_of_the_rank"),
                std::string::npos);
    }
}

TEST_F(run_test, a_process_that_a_callback_forked_ends_where_it_leaves_it) {
  TROUPE_SKIP_FORKS_UNDER_TSAN();
  for (auto throws : {false, true}) {
    auto options = train_options{.scaling = {.num_workers = 2},
                                 .run = config(throws ? "throws" : "returns")};
    int status = -1;
    options.run.callbacks = {on_report(0, [&] {
      auto child = fork();
      if (child == 0 && throws)
        throw std::runtime_error{"not of the run"};
      while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    })};
    auto outcome = run({}, options);
    ASSERT_FALSE(outcome.error) << outcome.error->message;
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), throws ? 1 : 0);
  }
}

} // namespace troupe::internal::test
