// Spawners and ranks that are killed or stopped while a run needs them.

#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tests/integration/run/report_hook.hpp"
#include "tests/integration/run/run_test.hpp"
#include "tests/integration/run/victim.hpp"
#include "tests/support/environment_guard.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal::test {

namespace {

void kill_spawner() {
  auto ranks = descendants(getpid());
  ASSERT_FALSE(ranks.empty());
  kill(ranks.front(), SIGKILL); // The first is this program's only child.
}

/// Reports some of what the rank has inherited. The first attempt does not end
/// by itself.
void inheriting_loop(train_context& context) {
  auto value = [](const char* name) {
    auto* found = std::getenv(name);
    return metric_value{found ? std::string{found} : "(unset)"};
  };
  auto mask = ::umask(0);
  ::umask(mask);
  context.report({{"color", value("TROUPE_TEST_COLOR")},
                  {"threads", value("OMP_NUM_THREADS")},
                  {"home", value("HOME")},
                  {"token", value("TROUPE_TEST_TOKEN")},
                  {"given", value("TROUPE_TEST_GIVEN")},
                  {"folder", fs::current_path().string()},
                  {"umask", static_cast<int>(mask)}});
  while (context.attempt() == 0)
    ::pause();
}

/// Changes what ranks inherit, and restores it at its end.
class inheritance_guard {
public:
  explicit inheritance_guard(const fs::path& folder) {
    ::unsetenv("HOME");
    fs::current_path(folder);
  }

  inheritance_guard(const inheritance_guard&) = delete;

  ~inheritance_guard() {
    fs::current_path(folder_);
    ::umask(mask_);
  }

private:
  environment_guard variables_{{{"TROUPE_TEST_COLOR", "green"},
                                {"TROUPE_TEST_TOKEN", "secret"},
                                {"TROUPE_TEST_GIVEN", "by main"},
                                {"OMP_NUM_THREADS", "3"},
                                {"HOME", "/"}}};
  fs::path folder_ = fs::current_path();
  mode_t mask_ = ::umask(027);
};

/// Stops processes; its destructor lets them continue.
class stopped {
public:
  stopped() = default;
  stopped(const stopped&) = delete;

  ~stopped() {
    for (auto pid : pids_)
      kill(pid, SIGCONT);
  }

  void stop(pid_t pid) {
    kill(pid, SIGSTOP);
    pids_.push_back(pid);
  }

  void stop_spawner() { stop(descendants(getpid()).front()); }

private:
  std::vector<pid_t> pids_;
};

} // namespace

TEST_F(run_test, a_run_continues_after_its_spawner_was_killed) {
  train_options options{.scaling = {.num_workers = 2}, .run = config()};
  options.run.failure.max_failures = 1;
  options.run.callbacks = {on_report(2, kill_spawner)};
  auto outcome = run({.steps = 40}, options);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.attempts, 2u);
  auto rows = outcome.metrics_history();
  ASSERT_TRUE(rows);
  ASSERT_EQ(rows->size(), 40u);
  for (int step = 0; step < 40; ++step)
    EXPECT_EQ((*rows)[step].values[0].at("step"), metric_value{step});
}

// In each attempt, whatever main changes after the start of the run.
TEST_F(run_test, ranks_of_each_spawner_see_what_main_changed_before_the_run) {
  auto folder = fs::canonical(storage_.path());
  inheritance_guard changes{folder};
  metrics wanted{{"color", "green"},         {"threads", "3"},
                 {"home", "(unset)"},        {"token", "(unset)"},
                 {"given", "by worker_env"}, {"umask", 027},
                 {"folder", folder.string()}};
  train_options options{.scaling = {.num_workers = 1}, .run = config()};
  options.run.failure.max_failures = 1;
  options.run.worker_env = {{"TROUPE_TEST_GIVEN", "by worker_env"}};
  options.run.report_page = false; // It looks for secrets in the environment.
  metrics of_first;
  options.run.callbacks = {std::make_shared<report_hook>(
    [&](std::uint64_t number, const metrics& values) {
      if (number != 0)
        return;
      of_first = values;
      ::setenv("TROUPE_TEST_COLOR", "red", 1);
      fs::current_path("/");
      ::umask(077);
      kill_spawner();
    })};
  auto outcome = data_parallel_trainer{inheriting_loop, options}.fit();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.attempts, 2u);
  EXPECT_EQ(of_first, wanted);
  EXPECT_EQ(outcome.metrics, wanted);
}

// Without its parents nothing leads from the driver to it.
TEST_F(run_test, what_ranks_of_a_killed_spawner_have_started_ends) {
  for (std::string action : {"leave_session", "leave_session_program"})
    for (auto failures : {0, 1}) {
      auto name = action + std::to_string(failures);
      train_options options{.scaling = {.num_workers = 2}, .run = config(name)};
      options.run.failure.max_failures = failures;
      std::vector<unique_fd> processes;
      options.run.callbacks = {on_report(2, [&] {
        for (auto pid : processes_of_ranks())
          processes.push_back(open_pidfd(pid));
        kill_spawner();
      })};
      auto outcome =
        run({.action = action, .rank = 1, .step = 1, .steps = 40}, options);
      EXPECT_EQ(outcome.attempts, failures + 1u) << name;
      EXPECT_EQ(outcome.error.has_value(), failures == 0) << name;
      EXPECT_EQ(processes.size(), 3u) << name;
      for (auto& process : processes)
        EXPECT_TRUE(has_ended(process, 0)) << name;
      auto lines = bytes_of(storage_ / name / "journal.jsonl");
      auto killed = lines.find("programs_killed");
      EXPECT_NE(killed, lines.npos) << name;
      // The end of a run does not wait for the search.
      EXPECT_EQ(lines.find("run_ended") < killed, failures == 0) << name;
    }
}

TEST_F(run_test, ranks_of_a_killed_spawner_are_reported) {
  train_options options{.scaling = {.num_workers = 2}, .run = config()};
  options.run.callbacks = {on_report(2, kill_spawner)};
  auto outcome = run({.steps = 1'000'000'000, .checkpoint_by = -1}, options);
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ec::rank_failed);
  EXPECT_EQ(outcome.error->ranks.size(), 2u) << outcome.error->message;
}

TEST_F(run_test, a_spawner_that_is_stopped_starts_nothing_within_its_limit) {
  // One rank makes sure that there is a spawner.
  ASSERT_FALSE(
    run({}, {.scaling = {.num_workers = 1}, .run = config("warm")}).error);
  stopped spawner;
  spawner.stop_spawner();
  train_options options{.scaling = {.num_workers = 2}, .run = config()};
  options.run.start_timeout = std::chrono::milliseconds{300};
  options.run.failure.controller_failure_limit = 0;
  auto outcome = run({}, options);
  ASSERT_TRUE(outcome.error);
  EXPECT_NE(outcome.error->message.find("its spawner did not answer"),
            std::string::npos)
    << outcome.error->message;
}

TEST_F(run_test,
       a_group_that_a_stopped_spawner_did_not_start_is_started_by_another) {
  ASSERT_FALSE(
    run({}, {.scaling = {.num_workers = 1}, .run = config("warm")}).error);
  stopped spawner;
  spawner.stop_spawner();
  train_options options{.scaling = {.num_workers = 2}, .run = config()};
  options.run.start_timeout = std::chrono::seconds{3};
  auto outcome = run({}, options);
  EXPECT_FALSE(outcome.error) << outcome.error->message;
}

TEST_F(run_test, loops_that_return_under_a_stopped_spawner_have_returned) {
  stopped spawner;
  train_options options{.scaling = {.num_workers = 2}, .run = config()};
  options.run.callbacks = {on_report(0, [&] { spawner.stop_spawner(); })};
  auto outcome = run({.steps = 20}, options);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.status, run_status_kind::finished);
  EXPECT_EQ(outcome.metrics.at("step"), metric_value{19});
}

TEST_F(run_test, a_rank_killed_under_a_stopped_spawner_alone_is_blamed) {
  stopped spawner;
  pid_t victim = 0;
  train_options options{.scaling = {.num_workers = 2}, .run = config()};
  options.run.callbacks = {on_report(2, [&] {
    spawner.stop_spawner();
    victim = processes_of_ranks().front();
    kill(victim, SIGKILL);
  })};
  auto outcome = run({.steps = 1'000'000'000, .checkpoint_by = -1}, options);
  ASSERT_TRUE(outcome.error);
  ASSERT_EQ(outcome.error->ranks.size(), 1u) << outcome.error->message;
  auto& [rank, failure] = *outcome.error->ranks.begin();
  EXPECT_EQ(failure.pid, victim);
  EXPECT_EQ(failure.what, "ended; the spawner did not say how within 2 s");
}

TEST_F(run_test, a_signal_stops_a_run_whose_spawner_is_stopped) {
  stopped spawner;
  train_options options{.scaling = {.num_workers = 2}, .run = config()};
  options.run.stop_timeout = std::chrono::milliseconds{300};
  options.run.callbacks = {on_report(2, [&] {
    spawner.stop_spawner();
    raise(SIGINT);
  })};
  auto outcome =
    run({.action = "wait_forever", .step = 3, .steps = 4}, options);
  EXPECT_EQ(outcome.status, run_status_kind::aborted)
    << (outcome.error ? outcome.error->message : "");
  // The spawner is killed now; ranks that have ended are its to reap till then.
  for (auto pid : processes_of_ranks())
    EXPECT_TRUE(gone_within(pid, 2)) << pid;
}

TEST_F(run_test, a_signal_stops_a_run_whose_ranks_are_stopped) {
  train_options options{.scaling = {.num_workers = 2}, .run = config()};
  options.run.stop_timeout = std::chrono::milliseconds{300};
  stopped ranks;
  options.run.callbacks = {on_report(2, [&] {
    for (auto pid : processes_of_ranks())
      ranks.stop(pid);
    raise(SIGINT);
  })};
  auto outcome = run({.steps = 1'000'000'000, .checkpoint_by = -1}, options);
  EXPECT_EQ(outcome.status, run_status_kind::aborted)
    << (outcome.error ? outcome.error->message : "");
  EXPECT_TRUE(processes_of_ranks().empty());
}

} // namespace troupe::internal::test
