// Names that are used again, and drivers that die.

#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <functional>

#include "tests/integration/run/run_test.hpp"
#include "tests/integration/run/victim.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal::test {

TEST_F(run_test, a_finished_name_is_refused_with_what_to_do) {
  ASSERT_FALSE(run({}).error);
  auto again = run({});
  ASSERT_TRUE(again.error);
  EXPECT_EQ(again.error->code, ec::conflict);
  EXPECT_NE(again.error->message.find("finished"), std::string::npos)
    << again.error->message;
  // What the first run left is untouched.
  EXPECT_EQ(result::from_path(run_path())->status, run_status_kind::finished);
}

TEST_F(run_test, a_failed_run_is_resumed_by_its_name) {
  auto first = run({.action = "throw", .rank = 1, .step = 2, .steps = 4});
  ASSERT_TRUE(first.error);
  auto second = run({.steps = 4});
  ASSERT_FALSE(second.error) << second.error->message;
  auto rows = second.metrics_history();
  ASSERT_TRUE(rows);
  ASSERT_EQ(rows->size(), 4u);
  for (int step = 0; step < 4; ++step)
    EXPECT_EQ((*rows)[step].values[0].at("step"), metric_value{step});
  EXPECT_EQ((*rows)[3].attempt, 1u);
}

TEST_F(run_test, a_rotten_checkpoint_is_skipped_and_the_one_before_is_used) {
  auto first = run({.action = "throw", .rank = 0, .step = 3, .steps = 4});
  ASSERT_TRUE(first.checkpoint);
  write_bytes(first.checkpoint->path() / "step.txt", "9\n");
  auto broken = first.checkpoint->verify();
  ASSERT_FALSE(broken);
  EXPECT_NE(broken.error().message.find("step.txt"), std::string::npos);
  auto second = run({.steps = 4});
  ASSERT_FALSE(second.error) << second.error->message;
  EXPECT_EQ(second.metrics.at("step"), metric_value{3});
  EXPECT_NE(bytes_of(run_path() / "journal.jsonl").find("checkpoint_rotten"),
            std::string::npos);
}

TEST_F(run_test, a_killed_driver_leaves_no_process_and_loses_no_report) {
  victim program{storage_.path().string()};
  wait_for_lines(run_path(), 200);
  auto processes = descendants(program.pid());
  EXPECT_EQ(processes.size(), 3u); // the spawner and two ranks
  program.kill(SIGKILL);
  program.wait();
  for (auto pid : processes)
    EXPECT_TRUE(gone_within(pid, 2)) << pid;
  auto before = result::from_path(run_path());
  ASSERT_TRUE(before) << before.error().message;
  auto rows = before->metrics_history();
  ASSERT_TRUE(rows) << rows.error().message;
  ASSERT_GE(rows->size(), 100u);
  // The next driver continues with the same indices.
  auto after = run({.steps = 2, .checkpoint_by = -1});
  ASSERT_FALSE(after.error) << after.error->message;
  auto all = after.metrics_history();
  ASSERT_TRUE(all);
  ASSERT_EQ(all->size(), rows->size() + 2);
  for (std::size_t i = 0; i < all->size(); ++i)
    EXPECT_EQ((*all)[i].index, i);
}

bool is_sleep(pid_t pid) {
  return bytes_of(fs::path{"/proc"} / std::to_string(pid) / "comm")
         == "sleep\n";
}

TEST_F(run_test, what_driver_and_spawner_left_when_killed_at_once_is_ended) {
  victim program{storage_.path().string(), "leave_program"};
  std::vector<pid_t> processes;
  wait_for(run_path(), [&] {
    processes = descendants(program.pid());
    return std::ranges::count_if(processes, is_sleep) == 2;
  });
  std::vector<unique_fd> left;
  for (auto pid : processes)
    left.push_back(open_pidfd(pid));
  // A driver that is stopped does not see the end of its spawner, the first of
  // them.
  int status = 0;
  kill(program.pid(), SIGSTOP);
  ASSERT_EQ(waitpid(program.pid(), &status, WUNTRACED), program.pid());
  kill(processes.front(), SIGKILL);
  kill(program.pid(), SIGKILL);
  program.wait();
  auto after = run({.steps = 2, .checkpoint_by = -1});
  ASSERT_FALSE(after.error) << after.error->message;
  for (auto& process : left)
    EXPECT_TRUE(has_ended(process, 0));
}

TEST_F(run_test, a_restarted_driver_continues_the_failure_count) {
  for (auto where : {"", "_inline"}) {
    auto storage = storage_ / ("runs" + std::string{where});
    fs::create_directory(storage);
    victim program{storage.string(),
                   "die_at_second_failure" + std::string{where}};
    auto status = program.wait();
    ASSERT_TRUE(WIFSIGNALED(status)) << WEXITSTATUS(status);
    train_options options{.scaling = {.num_workers = *where ? 0 : 2},
                          .run = config()};
    options.run.storage_path = storage;
    options.run.failure.max_failures = 2;
    auto outcome =
      run({.action = "throw", .rank = 0, .step = 0, .attempt = -1}, options);
    ASSERT_TRUE(outcome.error);
    // Attempts 0 and 1 failed in the first program; the third failure is one
    // too many.
    EXPECT_EQ(outcome.attempts, 3u) << where;
  }
}

class delivered_indices : public user_callback {
public:
  void before_run(const run_context&) override { indices.clear(); }

  void after_report(const run_context& run, const std::vector<metrics>& values,
                    const std::optional<checkpoint>&) override {
    EXPECT_EQ(values.size(), 2u);
    indices.push_back(run.report_index);
  }

  std::vector<std::uint64_t> indices;
};

// The driver dies between the checkpoint's commit and the journal's line.
TEST_F(run_test, a_report_is_delivered_and_kept_if_its_checkpoint_is) {
  for (auto moment : {"commit.renamed:3", "commit.state_saved:3"}) {
    auto storage = storage_ / moment;
    fs::create_directory(storage);
    ::setenv("TROUPE_FAILPOINT", moment, 1);
    victim program{storage.string(), "checkpoints"};
    ::unsetenv("TROUPE_FAILPOINT");
    EXPECT_TRUE(WIFSIGNALED(program.wait()));
    auto callback = std::make_shared<delivered_indices>();
    auto options =
      train_options{.scaling = {.num_workers = 2}, .run = config()};
    options.run.storage_path = storage;
    options.run.callbacks = {callback};
    // It was the last report of the run: there is nothing left to do.
    auto outcome = run({.steps = 3}, options);
    ASSERT_FALSE(outcome.error) << outcome.error->message;
    ASSERT_FALSE(callback->indices.empty()) << moment;
    EXPECT_EQ(callback->indices.back(), 2u) << moment;
    EXPECT_EQ(outcome.metrics.at("step"), metric_value{2});
    auto rows = outcome.metrics_history().value();
    ASSERT_EQ(rows.size(), 3u) << moment;
    EXPECT_EQ(rows[2].index, 2u);
    ASSERT_EQ(rows[2].values.size(), 2u);
    EXPECT_EQ(rows[2].values[1].at("rank"), metric_value{1});
    EXPECT_EQ(rows[2].checkpoint, outcome.checkpoint->name());
  }
}

TEST_F(run_test, callbacks_receive_what_a_killed_driver_had_not_delivered) {
  victim program{storage_.path().string(), "callback_waits"};
  auto journal = run_path() / "journal.jsonl";
  // Once the queue of callbacks is full no more lines come.
  wait_for(storage_.path(), [&] {
    auto text = fs::exists(journal) ? bytes_of(journal) : std::string{};
    return std::count(text.begin(), text.end(), '\n') >= 20;
  });
  program.kill(SIGKILL);
  program.wait();
  auto stored = result::from_path(run_path())->metrics_history()->size();
  ASSERT_GT(stored, 10u);
  for (int start = 0; start < 2; ++start) {
    auto callback = std::make_shared<delivered_indices>();
    auto options =
      train_options{.scaling = {.num_workers = 2}, .run = config()};
    options.run.callbacks = {callback};
    // The first start of two ends early, so that there is one more to resume.
    fault_plan plan{.steps = 2, .checkpoint_by = -1};
    if (start == 0)
      plan = {.action = "throw", .step = 1, .attempt = -1, .checkpoint_by = -1};
    EXPECT_EQ(run(plan, options).error.has_value(), start == 0);
    // The one that was under way comes first, no other comes twice.
    auto first = start == 0 ? 2u : stored + 1;
    auto last = start == 0 ? stored : stored + 2;
    ASSERT_EQ(callback->indices.size(), last - first + 1);
    for (std::size_t i = 0; i < callback->indices.size(); ++i)
      EXPECT_EQ(callback->indices[i], first + i);
  }
}

TEST_F(run_test, a_second_driver_of_the_same_run_is_refused) {
  victim program{storage_.path().string()};
  wait_for_lines(run_path(), 10);
  auto second = run({});
  ASSERT_TRUE(second.error);
  EXPECT_EQ(second.error->code, ec::conflict);
  EXPECT_NE(second.error->message.find(std::to_string(program.pid())),
            std::string::npos)
    << second.error->message;
}

TEST_F(run_test, an_interrupt_stops_the_run_in_good_order) {
  victim program{storage_.path().string()};
  wait_for_lines(run_path(), 50);
  auto processes = descendants(program.pid());
  program.kill(SIGINT);
  auto status = program.wait();
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 42); // the result says aborted
  for (auto pid : processes)
    EXPECT_TRUE(gone_within(pid, 2));
  auto left = result::from_path(run_path());
  ASSERT_TRUE(left);
  EXPECT_EQ(left->status, run_status_kind::aborted);
  EXPECT_EQ(left->error->message, "the run was stopped by SIGINT; the next run "
                                  "with run.name = \"run\" resumes it");
}

TEST_F(run_test, an_interrupt_that_is_too_late_for_the_run_is_the_programs) {
  for (std::string action :
       {"interrupt_at_end", "interrupt_at_end_inline", "interrupt_behind_error",
        "interrupt_behind_error_inline"}) {
    auto storage = storage_ / action;
    victim program{storage.string(), action};
    auto status = program.wait();
    EXPECT_TRUE(WIFSIGNALED(status)) << action;
    EXPECT_EQ(WTERMSIG(status), SIGINT) << action;
    auto left = result::from_path(storage / "run");
    ASSERT_TRUE(left);
    EXPECT_EQ(left->status, action.find("error") == action.npos
                              ? run_status_kind::finished
                              : run_status_kind::errored)
      << action;
  }
}

/// How often *text* stands in *all*.
std::size_t times(const std::string& all, const std::string& text) {
  std::size_t result = 0;
  for (auto i = all.find(text); i != all.npos; i = all.find(text, i + 1))
    ++result;
  return result;
}

/// What a run with *options* showed on the console.
std::string shown_by(const std::function<void()>& run) {
  testing::internal::CaptureStderr();
  run();
  return testing::internal::GetCapturedStderr();
}

TEST_F(run_test, a_score_that_no_checkpoint_has_is_shown_once) {
  for (int workers : {0, 2}) {
    auto name = "run" + std::to_string(workers);
    train_options options{.scaling = {.num_workers = workers},
                          .run = config(name)};
    options.run.quiet = false;
    options.run.checkpoint = {2, "acuracy", score_order::max};
    auto said = shown_by([&] {
      auto outcome = run({.steps = 4}, options);
      ASSERT_FALSE(outcome.error) << outcome.error->message;
      ASSERT_EQ(outcome.best_checkpoints.size(), 2u);
      EXPECT_EQ(outcome.best_checkpoints.front().index, 2u);
    });
    EXPECT_EQ(times(said, "checkpoint_score_attribute is 'acuracy'"), 1u)
      << said;
    EXPECT_EQ(times(said, "it has rank, step"), 1u) << said;
    auto journal = bytes_of(storage_ / name / "journal.jsonl");
    EXPECT_EQ(times(journal, "checkpoint_unscored"), 1u);
  }
}

/// Saves, fails, and begins again without a look at what it saved.
void forgetful_loop(train_context& context) {
  if (context.attempt() == 0) {
    auto files = context.new_checkpoint();
    write_bytes(files.path() / std::to_string(context.rank()), "weights");
    context.report({{"step", 0}}, std::move(files));
    throw std::runtime_error{"it fails"};
  }
  context.report({{"step", 0}});
  context.report({{"step", 1}});
}

TEST_F(run_test, a_loop_that_does_not_ask_for_its_checkpoint_is_shown_once) {
  for (int workers : {0, 2}) {
    auto name = "run" + std::to_string(workers);
    train_options options{.scaling = {.num_workers = workers},
                          .run = config(name)};
    options.run.quiet = false;
    options.run.failure.max_failures = 1;
    auto said = shown_by([&] {
      auto outcome = data_parallel_trainer{forgetful_loop, options}.fit();
      ASSERT_FALSE(outcome.error) << outcome.error->message;
    });
    EXPECT_EQ(times(said, "attempt 1 resumes from checkpoint_000000, but"), 1u)
      << said;
    auto journal = bytes_of(storage_ / name / "journal.jsonl");
    EXPECT_EQ(times(journal, "without having asked for context.checkpoint()"),
              1u);
  }
}

TEST_F(run_test, a_loop_that_asks_for_its_checkpoint_is_not_warned_about) {
  auto outcome =
    run({.action = "throw", .rank = 0, .step = 2, .steps = 4}, 2, 1);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(
    times(bytes_of(run_path() / "journal.jsonl"), "without having asked"), 0u);
}

TEST_F(run_test, a_run_that_resumes_says_from_where) {
  for (int workers : {0, 2})
    for (int saver : {0, -1}) {
      auto name = "run" + std::to_string(workers) + std::to_string(saver);
      train_options options{.scaling = {.num_workers = workers},
                            .run = config(name)};
      options.run.quiet = false;
      auto first = shown_by([&] {
        (void) run({.action = "throw",
                    .rank = 0,
                    .step = 3,
                    .attempt = -1,
                    .steps = 5,
                    .checkpoint_by = saver},
                   options);
      });
      EXPECT_EQ(times(first, "resumes after"), 0u) << first;
      auto said = shown_by(
        [&] { (void) run({.steps = 5, .checkpoint_by = saver}, options); });
      auto from = saver == 0 ? " from checkpoint_000002, which report 2 saved\n"
                             : ", without a checkpoint\n";
      EXPECT_EQ(times(said, "troupe: attempt 1 resumes after 3 reports"
                              + std::string{from}),
                1u)
        << said;
    }
}

TEST_F(run_test, the_console_says_what_follows_from_a_rotten_checkpoint) {
  for (int workers : {0, 2}) {
    auto name = "run" + std::to_string(workers);
    train_options options{.scaling = {.num_workers = workers},
                          .run = config(name)};
    auto first =
      run({.action = "throw", .rank = 0, .step = 3, .attempt = -1, .steps = 4},
          options);
    ASSERT_TRUE(first.checkpoint);
    write_bytes(first.checkpoint->path() / "step.txt", "9\n");
    options.run.quiet = false;
    auto said = shown_by([&] { (void) run({.steps = 4}, options); });
    EXPECT_EQ(times(said, "is damaged and was set aside"), 1u) << said;
    EXPECT_EQ(times(said,
                    "attempt 1 resumes after 3 reports from checkpoint_000001, "
                    "which report 1 saved"),
              1u)
      << said;
  }
}
} // namespace troupe::internal::test
