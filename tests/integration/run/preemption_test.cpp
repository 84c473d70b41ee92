// Runs that have to go: a signal or a call, a last checkpoint, and the next
// start that resumes.

#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <future>
#include <stop_token>
#include <thread>

#include <gmock/gmock.h>
#include <troupe/actors.hpp>

#include "tests/integration/run/report_hook.hpp"
#include "tests/integration/run/run_test.hpp"
#include "tests/integration/run/victim.hpp"
#include "tests/support/own_system.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/store/run_store.hpp"
#include "troupe/trainers/run_parts.hpp"

namespace troupe::internal::test {

namespace {

/// Reports until the run is preempted, then once more: after which report it
/// left.
void report_until_preempted(train_context& context, const fault_plan& plan) {
  int step = 0;
  while (!context.stop_requested()) {
    if (plan.action == "raise" && step == plan.step)
      raise(SIGUSR1);
    context.report({{"step", step++}},
                   report_options{.barrier = plan.action != "ahead"});
    // The ranks are not equally fast.
    for (int i = 0; i < context.rank() * 50; ++i)
      std::this_thread::yield();
  }
  auto why = context.stop_info();
  auto kind = why ? static_cast<int>(why->kind) : -1;
  context.report({{"left_after", step}, {"kind", kind}});
}

/// The last row of the history of *x*.
journaled_batch last_row(const result& x) {
  auto rows = x.metrics_history();
  EXPECT_TRUE(rows && !rows->empty());
  return rows && !rows->empty() ? rows->back() : journaled_batch{};
}

/// How a result ends of a run that was stopped or preempted.
std::string resumed_by(const std::string& name) {
  return "; the next run with run.name = \"" + name + "\" resumes it";
}

constexpr auto preempted_kind =
  static_cast<int>(stop_info::kind_type::preempted);

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

int stop_start_late(const fs::path& storage) {
  ::alarm(60); // Should the start not come to the failpoint.
  auto passed = storage / "passed";
  if (::mkfifo(passed.c_str(), 0600) != 0)
    return 1;
  // The start opens this pipe and waits, because it is full.
  unique_fd pipe{::open(passed.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC)};
  const std::string filling(65536, '.');
  while (::write(pipe.get(), filling.data(), filling.size()) > 0)
    continue;
  unique_fd openings{::inotify_init1(IN_CLOEXEC)};
  if (::fcntl(pipe.get(), F_SETFL, O_RDWR) != 0
      || ::inotify_add_watch(openings.get(), passed.c_str(), IN_OPEN) < 0
      || ::setenv("TROUPE_FAILPOINT_LOG", passed.c_str(), 1) != 0
      || !arm_failpoint("attempt.state_saved=eio"))
    return 1;
  own_system system;
  std::stop_source ending;
  std::jthread service{[&] {
    char event[1024];
    (void) !::read(openings.get(), event, sizeof(event));
    ending.request_stop();
    read_until(pipe.get(), "\n");
  }};
  train_options options{.scaling = {.num_workers = 0}};
  options.run.name = "run";
  options.run.storage_path = storage;
  fault_plan plan{.action = "leave", .steps = 1000};
  auto handle = data_parallel_trainer{counting_loop, plan, options}.start(
    system, ending.get_token());
  if (!handle)
    return 2;
  return handle->wait().status == run_status_kind::preempted ? 0 : 3;
}

TEST_F(run_test, a_stop_of_a_start_that_has_begun_an_attempt_preempts_it) {
  auto child = ::fork();
  if (child == 0) {
    ::execl("/proc/self/exe", "run_test", "--stop-late",
            storage_.path().c_str(), nullptr);
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

class start_beside_old_ranks : public run_test {
protected:
  /// What a rank of an earlier driver holds that has not ended.
  unique_fd old_rank() {
    auto dead = run_store::open(resolve(config())).value();
    EXPECT_TRUE(dead->begin_attempt());
    return join_attempt(dead->ticket().value()).value();
  }

  /// How often process *pid* has opened the file that such ranks lock.
  int openings_of_ranks(pid_t pid) {
    boost::system::error_code gone;
    fs::directory_iterator i{"/proc/" + std::to_string(pid) + "/fd", gone}, end;
    int result = 0;
    for (; !gone && i != end; i.increment(gone))
      result += fs::read_symlink(i->path(), gone) == run_path() / "ranks";
    return result;
  }
};

TEST_F(start_beside_old_ranks, returns_when_a_service_has_to_end) {
  auto rank = old_rank();
  auto before = openings_of_ranks(getpid());
  own_system system;
  std::stop_source ending;
  std::jthread service{[&] {
    wait_for(run_path(), [&] { return openings_of_ranks(getpid()) > before; });
    ending.request_stop();
  }};
  train_options options{.scaling = {.num_workers = 0}, .run = config()};
  auto handle =
    data_parallel_trainer{counting_loop, fault_plan{}, options}.start(
      system, ending.get_token());
  ASSERT_FALSE(handle);
  EXPECT_EQ(handle.error().code, ec::stopped);
  EXPECT_THAT(handle.error().message, testing::EndsWith(resumed_by("run")));
  auto left = result::from_path(run_path());
  ASSERT_TRUE(left) << left.error().message;
  EXPECT_EQ(left->status, run_status_kind::preempted);
}

TEST_F(start_beside_old_ranks, promises_no_resumption_unless_asked_to_stop) {
  auto rank = old_rank();
  own_system system;
  int asked = 0;
  run_surroundings around;
  around.given_up = [&] { return asked++ > 0; }; // Once it has its folder.
  around.end_of_given_up = failed_result;
  auto handle =
    prepare({{.num_workers = 0},
             config(),
             train_loop::make(counting_loop, no_backend{}, fault_plan{})})
      .and_then([&](prepared_request x) {
        return run_access::start(std::move(x), system, around);
      });
  ASSERT_FALSE(handle);
  EXPECT_EQ(handle.error().code, ec::stopped);
  EXPECT_THAT(handle.error().message,
              testing::Not(testing::EndsWith(resumed_by("run"))));
}

class preemption_at_the_start : public start_beside_old_ranks,
                                public testing::WithParamInterface<int> {};

TEST_P(preemption_at_the_start, ends_the_wait_for_old_ranks) {
  auto rank = old_rank();
  for (auto action : {"leave", "leave_inline"}) {
    victim program{storage_.path().string(), action};
    wait_for(run_path(), [&] { return openings_of_ranks(program.pid()) > 0; });
    program.kill(GetParam());
    auto status = program.wait();
    ASSERT_TRUE(WIFEXITED(status)) << action;
    EXPECT_EQ(WEXITSTATUS(status), GetParam() == SIGINT ? 42 : 43) << action;
    auto left = result::from_path(run_path());
    ASSERT_TRUE(left) << left.error().message;
    EXPECT_EQ(left->status, GetParam() == SIGINT ? run_status_kind::aborted
                                                 : run_status_kind::preempted)
      << action;
    ASSERT_TRUE(left->error) << action;
    EXPECT_TRUE(left->error->message.ends_with(resumed_by("run")))
      << left->error->message;
  }
}

INSTANTIATE_TEST_SUITE_P(signals, preemption_at_the_start,
                         testing::Values(SIGTERM, SIGINT));

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

TEST_F(run_test, a_file_that_may_not_grow_is_an_error) {
  victim program{storage_.path().string(), "file_limit"};
  auto status = program.wait();
  ASSERT_TRUE(WIFEXITED(status)) << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_THAT(result::from_path(run_path())->error->message,
              testing::HasSubstr("File too large"));
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
