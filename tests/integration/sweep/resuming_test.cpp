// Sweeps that are started again.

#include <chrono>
#include <csignal>
#include <map>
#include <string>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "tests/integration/run/victim.hpp"
#include "tests/integration/sweep/sweep_fixture.hpp"
#include "tests/support/small_disk.hpp"
#include "troupe/runtime/store/journal_line.hpp"
#include "troupe/runtime/sweep/sweep_store.hpp"
#include "troupe/runtime/unix_time.hpp"

namespace troupe::internal::test {

using testing::HasSubstr;

namespace {

/// Saves nothing. Its first attempt has two reports, then it stops the process
/// `go`.
void train_without_checkpoints(train_context& context, const settings& cfg) {
  for (int step = 0; step < 3; ++step) {
    context.report({{"loss", 1.0 / (step + 1)}});
    if (step == 1 && context.attempt() == 0) {
      ::kill(std::stoi(cfg.go), SIGINT);
      for (;;)
        ::pause();
    }
  }
}

} // namespace

TEST_F(sweep_test, repeats_no_trial_that_has_ended_and_can_be_extended) {
  auto options = sweep_options{
    .trials = 2, .searcher = random_search(3), .max_concurrent = 1};
  auto first = search({{"lr", uniform(0, 1)}}, options);
  ASSERT_FALSE(first.error) << first.error->message;
  options.trials = 3;
  auto second = search({{"lr", uniform(0, 1)}}, options);
  ASSERT_FALSE(second.error) << second.error->message;
  ASSERT_EQ(second.trials.size(), 3u);
  EXPECT_EQ(second.trials[0], first.trials[0]);
  EXPECT_EQ(second.trials[1], first.trials[1]);
}

TEST_F(sweep_test, counts_the_trials_of_earlier_starts_that_asked_for_more) {
  auto start = [this](int trials) {
    auto options = run();
    options.run.quiet = false;
    testing::internal::CaptureStderr();
    auto x = sweep{data_parallel_trainer{train, settings{}, options},
                   {{"lr", uniform(0, 1)}},
                   {.metric = "loss", .trials = trials, .max_concurrent = 1}}
               .fit();
    EXPECT_EQ(message_of(x), "");
    EXPECT_EQ(x.trials.size(), 3u);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(start(3), HasSubstr("0 running, 3 of 3 ended"));
  EXPECT_THAT(start(1), HasSubstr("0 running, 3 of 3 ended"));
  auto kept = read_sweep(path());
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->history.planned(), 3u);
}

TEST_F(sweep_test, says_that_the_config_is_another_than_before) {
  auto start = [this](const settings& cfg) {
    auto options = run();
    options.run.quiet = false;
    testing::internal::CaptureStderr();
    auto x = sweep{data_parallel_trainer{train, cfg, options},
                   widths(2),
                   {.metric = "loss", .searcher = grid_search()}}
               .fit();
    EXPECT_EQ(message_of(x), "");
    return testing::internal::GetCapturedStderr();
  };
  auto sentence = HasSubstr("another config of the loop");
  EXPECT_THAT(start({}), testing::Not(sentence));
  EXPECT_THAT(start({.width = 2}), testing::Not(sentence)) << "a param's value";
  EXPECT_THAT(start({.reports = 2}), sentence);
}

TEST_F(sweep_test, resumes_after_a_kill_without_repeating_a_trial) {
  auto go = storage_ / "go";
  victim sweeping{storage_.path().string(), go.string()};
  // Two trials have ended and the third is within its loop.
  auto lines = [&] { return bytes_of(path() / "sweep.jsonl"); };
  auto is_within = [&] {
    auto text = lines();
    std::size_t ends = 0;
    for (auto at = text.find("trial_ended"); at != text.npos;
         at = text.find("trial_ended", at + 1))
      ++ends;
    return ends == 2
           && bytes_of(path() / "trial-0002" / "journal.jsonl")
                  .find("\"batch\":0")
                != std::string::npos;
  };
  wait_for(storage_.path(), is_within);
  sweeping.kill(SIGKILL);
  auto killed = sweeping.wait();
  EXPECT_TRUE(WIFSIGNALED(killed));
  // As if the last line were written an hour after the others.
  auto journal = path() / "trial-0002" / "journal.jsonl";
  std::string line;
  append_event_line(
    line, 0, unix_us(std::chrono::system_clock::now() + std::chrono::hours{1}),
    "pause", {});
  write_bytes(journal, bytes_of(journal) + line);
  std::map<std::string, std::string> before;
  for (auto name : {"trial-0000", "trial-0001"})
    before[name] = bytes_of(path() / name / "journal.jsonl");
  write_bytes(go, "");
  auto x = search(widths(4), {.searcher = grid_search(), .max_concurrent = 1},
                  {.go = go.string()});
  ASSERT_FALSE(x.error) << x.error->message;
  ASSERT_EQ(x.trials.size(), 4u);
  for (auto& [name, journal] : before)
    EXPECT_EQ(bytes_of(path() / name / "journal.jsonl"), journal) << name;
  auto resumed = x.result_of(x.trials[2]);
  ASSERT_TRUE(resumed);
  EXPECT_GT(resumed->attempts, 1u);
  EXPECT_EQ(x.trials[2].reports, 3u) << "resumed from its checkpoint";
  EXPECT_GE(x.trials[2].seconds, 3600) << "those of the first start, too";
  EXPECT_EQ(x.trials[3].status, run_status_kind::finished);
}

TEST_F(sweep_test, a_signal_ends_it_and_the_next_start_resumes_it) {
  auto go = storage_ / "go";
  victim sweeping{storage_.path().string(), go.string()};
  wait_for(storage_.path(), [&] {
    return bytes_of(path() / "trial-0002" / "journal.jsonl").find("\"batch\":0")
           != std::string::npos;
  });
  sweeping.kill(SIGINT);
  auto ended = sweeping.wait();
  ASSERT_TRUE(WIFEXITED(ended));
  EXPECT_EQ(WEXITSTATUS(ended), 42);
  EXPECT_NE(bytes_of(path() / "sweep.jsonl").find("was stopped by SIGINT"),
            std::string::npos);
  write_bytes(go, "");
  auto x = search(widths(4), {.searcher = grid_search(), .max_concurrent = 1},
                  {.go = go.string()});
  ASSERT_FALSE(x.error) << x.error->message;
  EXPECT_EQ(x.trials.size(), 4u);
  EXPECT_EQ(x.trials.at(2).reports, 3u);
}

TEST_F(sweep_test, says_that_a_trial_without_a_checkpoint_has_more_reports) {
  auto options = run();
  options.run.quiet = false;
  settings cfg;
  cfg.go = std::to_string(::getpid());
  auto start = [&] {
    return sweep{data_parallel_trainer{train_without_checkpoints, cfg, options},
                 widths(1),
                 {.metric = "loss",
                  .searcher = grid_search(),
                  .halving = halving_options{.min_reports = 9}}}
      .fit();
  };
  EXPECT_TRUE(start().stop_requested);
  testing::internal::CaptureStderr();
  auto x = start();
  auto said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(message_of(x), "");
  EXPECT_EQ(x.trials.at(0).reports, 5u);
  EXPECT_THAT(said, HasSubstr("trial-0000 trains from the beginning, without a "
                              "checkpoint; halving counts its 2 earlier "
                              "reports, too"));
}

// The trial was over before the signal, which is then about the rest.
TEST_F(sweep_test, the_first_signal_ends_the_wait_for_trackers_of_a_trial) {
  int console[2];
  ASSERT_EQ(::pipe2(console, O_CLOEXEC), 0);
  victim sweeping{storage_.path().string(), "tracker_down", {}, console[1]};
  ::close(console[1]);
  EXPECT_THAT(read_until(console[0], "ends the wait"),
              HasSubstr("trial-0000: the run is over and waits for trackers"));
  sweeping.kill(SIGINT);
  auto ended = sweeping.wait();
  ::close(console[0]);
  ASSERT_TRUE(WIFEXITED(ended));
  EXPECT_EQ(WEXITSTATUS(ended), 42);
  EXPECT_EQ(result::from_path(path() / "trial-0000")->status,
            run_status_kind::finished);
}

TEST_F(sweep_test, trials_that_failed_run_again_after_a_correction) {
  auto one_by_one = [](bool again) {
    return sweep_options{
      .searcher = grid_search(), .max_concurrent = 1, .retry_failed = again};
  };
  auto x = search(widths(3), one_by_one(false), {.fails_from = 2});
  EXPECT_EQ(message_of(x), "");
  EXPECT_EQ(x.trials.at(2).status, run_status_kind::errored);
  x = search(widths(3), one_by_one(false));
  EXPECT_EQ(x.trials.at(2).status, run_status_kind::errored);
  x = search(widths(3), one_by_one(true));
  EXPECT_EQ(message_of(x), "");
  for (auto& one : x.trials) {
    EXPECT_EQ(one.status, run_status_kind::finished) << one.name;
    EXPECT_EQ(one.reports, 3u) << one.name;
  }
}

TEST_F(sweep_test, a_full_disk_ends_the_sweep_and_blames_no_trial) {
  small_disk disk{storage_ / "disk", "8m"};
  if (!disk)
    GTEST_SKIP() << "mounting a small tmpfs: " << disk.reason();
  auto ballast = disk.path() / "ballast";
  auto start = [&](const settings& cfg) {
    return sweep{
      data_parallel_trainer{train, cfg, options_in(disk.path())},
      widths(3),
      {.metric = "loss", .searcher = grid_search(), .max_concurrent = 1}}
      .fit();
  };
  auto x = start({.ballast = ballast.string()});
  EXPECT_THAT(message_of(x), HasSubstr("trial-0001: "));
  EXPECT_THAT(message_of(x), HasSubstr("No space left on device"));
  ASSERT_EQ(x.trials.size(), 2u);
  EXPECT_EQ(x.trials[0].status, run_status_kind::finished);
  EXPECT_EQ(x.trials[1].status, run_status_kind::running) << "to be resumed";
  fs::remove(ballast);
  x = start({});
  EXPECT_EQ(message_of(x), "");
  EXPECT_EQ(x.trials.size(), 3u);
  for (auto& one : x.trials)
    EXPECT_EQ(one.status, run_status_kind::finished) << one.name;
}

} // namespace troupe::internal::test
