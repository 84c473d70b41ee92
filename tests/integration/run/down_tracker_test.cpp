// Runs that end while their tracker cannot be reached.

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/integration/run/run_test.hpp"
#include "tests/integration/run/victim.hpp"

namespace troupe::internal::test {

class tracker_that_is_down : public run_test,
                             public testing::WithParamInterface<const char*> {
protected:
  tracker_that_is_down() { EXPECT_EQ(pipe2(console_, O_CLOEXEC), 0); }

  ~tracker_that_is_down() override { close(console_[0]); }

  /// A run whose tracker is not there, at its end.
  std::unique_ptr<victim> waiting_program(const std::string& action) {
    auto result = std::make_unique<victim>(storage_.path().string(), action,
                                           std::vector<int>{}, console_[1]);
    close(console_[1]);
    return result;
  }

  void expect_wait() {
    auto said = read_until(console_[0], "ends the wait");
    EXPECT_THAT(said, testing::HasSubstr("waits for trackers to finish: "
                                         "mlflow (at most 35"));
  }

  int console_[2];
};

TEST_P(tracker_that_is_down, is_given_up_for_a_signal_to_the_program) {
  auto program = waiting_program(std::string{"tracker_down"} + GetParam());
  expect_wait();
  program->kill(SIGINT);
  auto status = program->wait();
  ASSERT_TRUE(WIFSIGNALED(status)); // It is none of the run's.
  EXPECT_EQ(WTERMSIG(status), SIGINT);
  EXPECT_THAT(read_until(console_[0], ""),
              testing::HasSubstr("records are unsent"));
  EXPECT_EQ(result::from_path(run_path())->status, run_status_kind::finished);
}

TEST_P(tracker_that_is_down, is_given_up_for_a_second_signal) {
  auto program = waiting_program(std::string{"tracker_down_long"} + GetParam());
  wait_for_lines(run_path(), 5);
  program->kill(SIGINT);
  expect_wait();
  program->kill(SIGINT);
  auto status = program->wait();
  ASSERT_TRUE(WIFEXITED(status)) << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 42);
  EXPECT_EQ(
    result::from_path(run_path())->error->message,
    "the run was stopped by SIGINT; the next run with run.name = \"run\" "
    "resumes it");
}

INSTANTIATE_TEST_SUITE_P(workers, tracker_that_is_down,
                         testing::Values("", "_inline"));

} // namespace troupe::internal::test
