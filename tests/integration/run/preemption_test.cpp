// Runs that have to go: a signal or a call, a last checkpoint, and the next
// start that resumes.

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <troupe/actors.hpp>

#include "tests/integration/run/preemption.hpp"
#include "tests/integration/run/report_hook.hpp"
#include "tests/integration/run/run_test.hpp"
#include "tests/integration/run/victim.hpp"
#include "tests/support/own_system.hpp"

namespace troupe::internal::test {

namespace {

/// The last row of the history of *x*.
journaled_batch last_row(const result& x) {
  auto rows = x.metrics_history();
  EXPECT_TRUE(rows && !rows->empty());
  return rows && !rows->empty() ? rows->back() : journaled_batch{};
}

} // namespace

class preemption_by_signal : public run_test,
                             public testing::WithParamInterface<int> {};

TEST_P(preemption_by_signal, ends_with_a_last_checkpoint_and_resumes) {
  {
    victim program{storage_.path().string(), "leave"};
    wait_for_lines(run_path(), 5);
    // A run may be ended by a signal to all of its processes.
    for (auto pid : descendants(program.pid()))
      kill(pid, GetParam());
    program.kill(GetParam());
    auto status = program.wait();
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 43);
  }
  auto left = result::from_path(run_path());
  ASSERT_TRUE(left) << left.error().message;
  EXPECT_EQ(left->status, run_status_kind::preempted);
  ASSERT_TRUE(left->checkpoint);
  EXPECT_TRUE(left->checkpoint->verify());
  auto last = last_row(*left);
  EXPECT_EQ(last.checkpoint, left->checkpoint->name());
  ASSERT_EQ(last.values.size(), 2u);
  EXPECT_EQ(last.values[0].at("step"), last.values[1].at("step"));
  auto step = static_cast<int>(last.values[0].number("step"));
  auto next =
    run({.steps = step + 3},
        train_options{.scaling = {.num_workers = 2}, .run = config()});
  ASSERT_FALSE(next.error) << next.error->message;
  EXPECT_EQ(next.attempts, 2u);
}

INSTANTIATE_TEST_SUITE_P(signals, preemption_by_signal,
                         testing::Values(SIGTERM, SIGUSR1, SIGHUP));

TEST_F(run_test, a_run_says_so_if_no_signal_can_end_it) {
  for (int workers : {0, 1}) {
    train_options options{
      .scaling = {.num_workers = workers, .where = placement::in_process},
      .run = config(std::to_string(workers))};
    options.run.quiet = false;
    testing::internal::CaptureStderr();
    result outcome;
    std::thread{[&] { outcome = run({.steps = 1}, options); }}.join();
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                testing::HasSubstr("signals are not watched: fit() was not "
                                   "called by the main thread"));
    EXPECT_EQ(outcome.status, run_status_kind::finished);
  }
}

TEST_F(run_test, a_console_that_no_one_reads_holds_up_no_stop) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  std::string block(4096, '.');
  while (write(ends[1], block.data(), block.size()) > 0) {
  }
  fcntl(ends[1], F_SETFL, 0);
  victim program{storage_.path().string(), "show", {}, ends[1]};
  wait_for_lines(run_path(), 5);
  program.kill(SIGINT);
  EXPECT_TRUE(gone_within(program.pid(), 30));
  if (testing::Test::HasFailure())
    program.kill(SIGKILL);
  auto status = program.wait();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 42);
  close(ends[0]);
  close(ends[1]);
}

struct preempted_place {
  placement where;
  const char* action;
};

class preemption_by_call : public run_test,
                           public testing::WithParamInterface<preempted_place> {
};

TEST_P(preemption_by_call, all_ranks_leave_after_the_same_report) {
  own_system system;
  auto handle = data_parallel_trainer{
    report_until_preempted, fault_plan{.action = GetParam().action},
    train_options{
      .scaling = {.num_workers = 3, .where = GetParam().where},
      .run =
        config()}}.start(system);
  ASSERT_TRUE(handle) << handle.error().message;
  while (handle->status().reports < 20)
    std::this_thread::yield();
  handle->preempt();
  auto outcome = handle->wait();
  EXPECT_EQ(outcome.status, run_status_kind::preempted);
  auto row = last_row(outcome);
  ASSERT_EQ(row.values.size(), 3u);
  for (auto& x : row.values) {
    EXPECT_EQ(x.at("left_after"), row.values[0].at("left_after"));
    EXPECT_EQ(x.at("kind"), metric_value{preempted_kind});
  }
}

void run_until_asked(train_context& context) {
  context.report({{"begun", true}});
  while (!context.stop_requested())
    std::this_thread::yield();
}

TEST_P(preemption_by_call,
       loops_that_return_after_the_grace_have_not_finished) {
  own_system system;
  auto handle = data_parallel_trainer{
    run_until_asked,
    train_options{
      .scaling = {.num_workers = 2, .where = GetParam().where},
      .run =
        config()}}.start(system);
  ASSERT_TRUE(handle) << handle.error().message;
  while (handle->status().reports < 1)
    std::this_thread::yield();
  handle->preempt("now", std::chrono::milliseconds{1});
  EXPECT_EQ(handle->wait().status, run_status_kind::preempted);
}

TEST_P(preemption_by_call, the_end_is_stored_before_callbacks_are_through) {
  own_system system;
  auto options = train_options{
    .scaling = {.num_workers = 2, .where = GetParam().where}, .run = config()};
  std::promise<void> go_on;
  options.run.callbacks = {
    on_report(0, [until = go_on.get_future().share()] { until.wait(); })};
  auto handle =
    data_parallel_trainer{report_until_preempted, fault_plan{}, options}.start(
      system);
  ASSERT_TRUE(handle) << handle.error().message;
  while (handle->status().reports < 3)
    std::this_thread::yield();
  handle->preempt();
  wait_for(run_path(), [this] {
    auto stored = result::from_path(run_path());
    return stored && stored->status == run_status_kind::preempted;
  });
  go_on.set_value();
  EXPECT_EQ(handle->wait().status, run_status_kind::preempted);
}

TEST_P(preemption_by_call, limits_without_end_are_limits) {
  constexpr auto never = std::chrono::milliseconds::max();
  own_system system;
  auto options = train_options{
    .scaling = {.num_workers = 2, .where = GetParam().where}, .run = config()};
  options.run.start_timeout = options.run.stop_timeout = never;
  options.run.exit_timeout = options.run.stop_grace = never;
  options.run.callback_timeout = never;
  options.run.callback_limit = options.run.report_timeout = never;
  options.run.hang_timeout = never;
  options.run.callbacks = {std::make_shared<user_callback>()};
  auto handle =
    data_parallel_trainer{report_until_preempted, fault_plan{}, options}.start(
      system);
  ASSERT_TRUE(handle) << handle.error().message;
  while (handle->status().reports < 20)
    std::this_thread::yield();
  handle->preempt("in time", never);
  auto outcome = handle->wait();
  EXPECT_EQ(outcome.status, run_status_kind::preempted);
  EXPECT_EQ(outcome.metrics.at("kind"), metric_value{preempted_kind});
  EXPECT_TRUE(outcome.unsent.empty());
}

INSTANTIATE_TEST_SUITE_P(
  places, preemption_by_call,
  testing::Values(preempted_place{placement::processes, ""},
                  preempted_place{placement::processes, "ahead"},
                  preempted_place{placement::in_process, "ahead"}));

/// Preempts the driver, and returns once it has forwarded that.
void return_before_asking(train_context& context, const fault_plan& plan) {
  context.report({{"step", 0}});
  if (context.rank() == 0)
    kill(plan.step, SIGTERM);
  while (bytes_of(plan.text).find("preempted by SIGTERM") == std::string::npos)
    std::this_thread::yield();
}

TEST_F(run_test,
       a_run_that_finishes_despite_a_preemption_says_so_to_its_caller) {
  auto options = train_options{.scaling = {.num_workers = 2}, .run = config()};
  fault_plan plan{.step = getpid(),
                  .text = (run_path() / "journal.jsonl").string()};
  auto outcome =
    data_parallel_trainer{return_before_asking, plan, options}.fit();
  EXPECT_EQ(outcome.status, run_status_kind::finished);
  EXPECT_TRUE(outcome.stop_requested);
  options.run.name = "next";
  outcome = run({}, options);
  EXPECT_EQ(outcome.status, run_status_kind::finished);
  EXPECT_FALSE(outcome.stop_requested);
}

TEST_F(run_test, a_run_without_a_name_says_which_name_resumes_it) {
  for (int workers : {0, 2}) {
    train_options options{
      .scaling = {.num_workers = workers, .where = placement::in_process},
      .run = config()};
    options.run.name.reset();
    auto stop = [](train_context& context) {
      if (context.rank() == 0)
        kill(getpid(), SIGINT);
      for (int i = 0;; ++i)
        context.report({{"i", i}});
    };
    auto outcome = data_parallel_trainer{stop, options}.fit();
    ASSERT_TRUE(outcome.error);
    EXPECT_EQ(outcome.error->message,
              "the run was stopped by SIGINT"
                + resumed_by(outcome.path.filename().string()));
  }
}

TEST_F(run_test, the_environment_says_how_long_a_sender_waits) {
  setenv("TROUPE_SENDER_GRACE", "90", 1);
  auto told = resolve(config());
  unsetenv("TROUPE_SENDER_GRACE");
  EXPECT_EQ(told.sender_grace, std::chrono::seconds{90});
  // What is left of it once ranks that stay were ended.
  EXPECT_EQ(longest_grace(told), std::chrono::seconds{85});
  EXPECT_GT(longest_grace(resolve(config())), std::chrono::years{1});
}

TEST_F(run_test, a_sender_that_waits_for_no_number_of_seconds_is_refused) {
  for (auto text :
       {"30s", "soon", "-3", "", "1000000001", "0x1e", " 30", "0,5"}) {
    setenv("TROUPE_SENDER_GRACE", text, 1);
    auto outcome = run({});
    unsetenv("TROUPE_SENDER_GRACE");
    ASSERT_TRUE(outcome.error) << text;
    EXPECT_EQ(outcome.error->code, ec::invalid_config);
    EXPECT_THAT(outcome.error->message,
                testing::HasSubstr("TROUPE_SENDER_GRACE must be a number of "
                                   "seconds, at most 1000000000"));
  }
}

TEST_F(run_test, ranks_that_never_report_are_ended_at_the_deadline) {
  own_system system;
  auto options = train_options{.scaling = {.num_workers = 2}, .run = config()};
  options.run.stop_timeout = std::chrono::milliseconds{1};
  auto handle =
    data_parallel_trainer{
      counting_loop, fault_plan{.action = "wait_forever", .step = 2}, options}
      .start(system);
  ASSERT_TRUE(handle) << handle.error().message;
  while (handle->status().reports < 2)
    std::this_thread::yield();
  handle->preempt("now", std::chrono::milliseconds{1});
  auto outcome = handle->wait();
  EXPECT_EQ(outcome.status, run_status_kind::preempted);
  EXPECT_TRUE(outcome.checkpoint);
}

} // namespace troupe::internal::test
