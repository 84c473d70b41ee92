// Inline runs that signals ask to go.

#include <csignal>
#include <stdexcept>
#include <thread>

#include <gmock/gmock.h>

#include "tests/integration/run/preemption.hpp"
#include "tests/integration/run/run_test.hpp"
#include "troupe/runtime/failpoint.hpp"

namespace troupe::internal::test {

TEST_F(run_test, an_inline_run_is_preempted_by_a_signal) {
  train_options options{.scaling = {.num_workers = 0}, .run = config()};
  auto outcome =
    data_parallel_trainer{report_until_preempted,
                          fault_plan{.action = "raise", .step = 3}, options}
      .fit();
  EXPECT_EQ(outcome.status, run_status_kind::preempted);
  ASSERT_TRUE(outcome.error);
  EXPECT_TRUE(outcome.stop_requested);
  EXPECT_EQ(outcome.error->message,
            "the run was preempted by SIGUSR1" + resumed_by("run"));
  EXPECT_EQ(outcome.metrics.at("kind"), metric_value{preempted_kind});
}

TEST_F(run_test, an_inline_run_that_finishes_although_it_has_to_go_says_so) {
  train_options options{.scaling = {.num_workers = 0}, .run = config()};
  auto outcome =
    data_parallel_trainer{[](train_context&) { raise(SIGTERM); }, options}
      .fit();
  EXPECT_EQ(outcome.status, run_status_kind::finished);
  EXPECT_TRUE(outcome.stop_requested);
}

TEST_F(run_test, an_inline_run_whose_end_is_not_stored_keeps_its_status) {
  train_options options{.scaling = {.num_workers = 0}, .run = config()};
  auto leave = [](train_context& context) {
    raise(SIGTERM);
    for (int i = 0; !context.stop_requested(); ++i)
      context.report({{"i", i}});
    (void) arm_failpoint("journal.append:1+=enospc");
  };
  auto outcome = data_parallel_trainer{leave, options}.fit();
  (void) arm_failpoint("");
  EXPECT_EQ(outcome.status, run_status_kind::preempted);
  ASSERT_TRUE(outcome.error);
  EXPECT_THAT(outcome.error->message,
              testing::AllOf(testing::HasSubstr("preempted by SIGTERM"),
                             testing::HasSubstr("could not be stored")));
}

TEST_F(run_test, an_inline_loop_that_stays_is_ended_at_the_deadline) {
  train_options options{.scaling = {.num_workers = 0}, .run = config()};
  options.run.stop_grace = std::chrono::milliseconds{1};
  auto stay = [](train_context& context) {
    raise(SIGTERM);
    for (int i = 0;; ++i)
      context.report({{"i", i}});
  };
  auto outcome = data_parallel_trainer{stay, options}.fit();
  EXPECT_EQ(outcome.status, run_status_kind::preempted);
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ec::stopped) << outcome.error->message;
}

TEST_F(run_test, a_stop_ends_the_grace_of_an_inline_run_too) {
  train_options options{.scaling = {.num_workers = 0}, .run = config()};
  auto stay = [](train_context& context) {
    raise(SIGTERM);
    for (int i = 0;; ++i) {
      context.report({{"i", i}});
      if (i == 0)
        raise(SIGINT);
    }
  };
  auto outcome = data_parallel_trainer{stay, options}.fit();
  EXPECT_EQ(outcome.status, run_status_kind::aborted);
  EXPECT_EQ(outcome.error->message,
            "the run was stopped by SIGINT" + resumed_by("run"));
}

TEST_F(run_test, an_inline_loop_that_is_stopped_may_leave_in_any_way) {
  using loop = void (*)(train_context&);
  auto returns = [](train_context& context) {
    context.report({{"i", 0}});
    raise(SIGINT);
    while (!context.stop_requested())
      std::this_thread::yield();
  };
  auto throws = [](train_context& context) {
    raise(SIGINT);
    while (!context.stop_requested())
      std::this_thread::yield();
    throw std::runtime_error{"interrupted"};
  };
  for (loop leaves : {loop{returns}, loop{throws}}) {
    train_options options{.scaling = {.num_workers = 0}, .run = config()};
    auto outcome = data_parallel_trainer{leaves, options}.fit();
    EXPECT_EQ(outcome.status, run_status_kind::aborted);
    EXPECT_EQ(outcome.error->message,
              "the run was stopped by SIGINT" + resumed_by("run"));
  }
}

} // namespace troupe::internal::test
