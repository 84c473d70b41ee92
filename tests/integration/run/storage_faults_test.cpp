// Storage that fills up, refuses to be written or goes away under a run.

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "tests/integration/run/report_hook.hpp"
#include "tests/integration/run/run_test.hpp"
#include "tests/integration/run/victim.hpp"
#include "tests/support/small_disk.hpp"
#include "troupe/runtime/checkpoint/manifest.hpp"

namespace troupe::internal::test {

namespace {

/// Counts and says so in *text*; each report fills some of the disk.
void tell_much(train_context& context, const fault_plan& plan) {
  for (int step = 0; step < plan.steps; ++step) {
    context.report({{"step", step}, {"text", std::string(20'000, 'x')}});
    if (context.rank() == 0)
      write_bytes(plan.text, std::to_string(step + 1));
  }
}

/// Saves `plan.steps` files with long names in one checkpoint.
void save_many(train_context& context, const fault_plan& plan) {
  auto files = context.new_checkpoint();
  for (int i = 0; i < plan.steps; ++i)
    write_bytes(files.path() / (std::string(230, 'x') + std::to_string(i)),
                std::to_string(i));
  context.report({{"files", plan.steps}}, std::move(files));
}

} // namespace

class storage_faults_test : public run_test {
protected:
  train_options options(const fs::path& storage) {
    train_options x{.scaling = {.num_workers = 2}, .run = config()};
    x.run.storage_path = storage;
    return x;
  }

  static void expect_storage_error(const result& outcome,
                                   const fs::path& path) {
    ASSERT_TRUE(outcome.error);
    EXPECT_EQ(outcome.status, run_status_kind::errored);
    EXPECT_EQ(outcome.error->code, ec::storage);
    EXPECT_NE(outcome.error->message.find(path.string()), std::string::npos)
      << outcome.error->message;
  }
};

TEST_F(storage_faults_test, a_full_disk_ends_the_run_and_keeps_what_was_there) {
  small_disk disk{storage_ / "disk", "1m"};
  if (!disk)
    GTEST_SKIP() << "mounting a small tmpfs: " << disk.reason();
  auto given = options(disk.path());
  auto ballast = disk.path() / "ballast";
  given.run.callbacks = {on_report(3, [&] { fill_up(ballast); })};
  auto outcome = run({.steps = 1'000'000}, given);
  expect_storage_error(outcome, disk.path() / "run");
  ASSERT_GE(outcome.best_checkpoints.size(), 4u);
  for (auto& x : outcome.best_checkpoints)
    EXPECT_TRUE(x.data.verify()) << x.data.path();
  // With room again, the run continues where it was.
  auto steps = static_cast<int>(outcome.best_checkpoints.size());
  fs::remove(ballast);
  given.run.callbacks.clear();
  auto second = run({.steps = steps + 2}, given);
  ASSERT_FALSE(second.error) << second.error->message;
  auto rows = second.metrics_history();
  ASSERT_TRUE(rows);
  ASSERT_EQ(rows->size(), static_cast<std::size_t>(steps) + 2);
  for (std::size_t i = 0; i < rows->size(); ++i)
    EXPECT_EQ((*rows)[i].values[0].at("step"), metric_value{i});
}

TEST_F(storage_faults_test, a_rank_that_cannot_copy_its_files_says_why) {
  small_disk disk{storage_ / "disk", "1m"};
  if (!disk)
    GTEST_SKIP() << "mounting a small tmpfs: " << disk.reason();
  fs::create_directory(storage_ / "model");
  write_bytes(storage_ / "model" / "weights", std::string(2 << 20, 'x'));
  auto outcome = run({.action = "missing_folder",
                      .rank = 0,
                      .step = 1,
                      .text = (storage_ / "model").string()},
                     options(disk.path()));
  auto& what = only_failure(outcome, 0).what;
  EXPECT_NE(what.find("weights"), std::string::npos) << what;
  ASSERT_TRUE(outcome.checkpoint);
  EXPECT_TRUE(outcome.checkpoint->verify());
}

TEST_F(storage_faults_test,
       a_checkpoint_may_have_more_files_than_fit_a_message) {
  // Their names alone are more than a message takes. On a disk that is none,
  // where the ranks' fsyncs take long, they are only too many to be in one.
  small_disk disk{storage_ / "disk", "256m"};
  auto given = options(disk ? disk.path() : storage_.path());
  given.scaling.num_workers = 1;
  auto many = disk ? 18'000 : 2'500;
  auto outcome =
    data_parallel_trainer{save_many, fault_plan{.steps = many}, given}.fit();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  ASSERT_TRUE(outcome.checkpoint);
  auto whole = outcome.checkpoint->verify();
  EXPECT_TRUE(whole) << whole.error().message;
  auto entries = read_manifest(outcome.checkpoint->path()).value().files;
  ASSERT_EQ(entries.size(), static_cast<std::size_t>(many));
  auto last = std::to_string(many - 1);
  EXPECT_EQ(
    bytes_of(outcome.checkpoint->path() / (std::string(230, 'x') + last)),
    last);
}

TEST_F(storage_faults_test, files_are_copied_from_another_disk) {
  small_disk disk{storage_ / "disk", "4m"};
  if (!disk)
    GTEST_SKIP() << "mounting a small tmpfs: " << disk.reason();
  auto bytes = std::string(1 << 20, 'x');
  for (auto [from, to] : {std::pair{storage_ / "model", disk.path() / "runs"},
                          {disk.path() / "model", storage_ / "runs"}}) {
    fs::create_directory(from);
    write_bytes(from / "weights", bytes);
    auto given = options(to);
    given.scaling.num_workers = 1;
    auto outcome = run({.action = "missing_folder",
                        .steps = 1,
                        .checkpoint_by = -1,
                        .text = from.string()},
                       given);
    ASSERT_FALSE(outcome.error) << outcome.error->message;
    ASSERT_TRUE(outcome.checkpoint);
    EXPECT_EQ(bytes_of(outcome.checkpoint->path() / "weights"), bytes);
  }
}

TEST_F(storage_faults_test, a_full_disk_loses_no_report_that_had_returned) {
  small_disk disk{storage_ / "disk", "256k"};
  if (!disk)
    GTEST_SKIP() << "mounting a small tmpfs: " << disk.reason();
  auto told = storage_ / "returned";
  fault_plan plan{.steps = 1'000'000, .text = told.string()};
  auto outcome =
    data_parallel_trainer{tell_much, plan, options(disk.path())}.fit();
  expect_storage_error(outcome, disk.path() / "run" / "journal.jsonl");
  auto left = result::from_path(disk.path() / "run");
  ASSERT_TRUE(left) << left.error().message;
  auto rows = left->metrics_history();
  ASSERT_TRUE(rows) << rows.error().message;
  EXPECT_EQ(rows->size(), std::stoul(bytes_of(told)));
}

TEST_F(storage_faults_test, a_disk_that_can_only_be_read_is_named) {
  small_disk disk{storage_ / "disk", "1m"};
  if (!disk || !disk.make_read_only())
    GTEST_SKIP() << "mounting a small tmpfs: " << disk.reason();
  auto outcome = run({}, options(disk.path()));
  expect_storage_error(outcome, disk.path() / "run");
}

TEST_F(run_test, a_file_that_may_not_grow_is_an_error) {
  victim program{storage_.path().string(), "file_limit"};
  auto status = program.wait();
  ASSERT_TRUE(WIFEXITED(status)) << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_THAT(result::from_path(run_path())->error->message,
              testing::HasSubstr("File too large"));
}

/// Trackers write to the folder meanwhile, which may hold up its removal.
void remove(const fs::path& x) {
  boost::system::error_code reason;
  do
    fs::remove_all(x, reason);
  while (fs::exists(x));
}

/// How storage vanishes, and whether ranks write checkpoints meanwhile.
struct vanishing {
  std::string name;
  std::function<void(const fs::path&)> act;
  int checkpoint_by;
};

class vanished_storage_test : public storage_faults_test,
                              public ::testing::WithParamInterface<vanishing> {
};

TEST_P(vanished_storage_test, ends_the_run_with_the_path_that_is_gone) {
  auto given = options(storage_ / "disk");
  auto path = storage_ / "disk" / "run";
  given.run.callbacks = {on_report(3, [&] { GetParam().act(path); })};
  auto outcome = run(
    {.steps = 1'000'000'000, .checkpoint_by = GetParam().checkpoint_by}, given);
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.status, run_status_kind::errored);
  EXPECT_NE(outcome.error->message.find(path.string()), std::string::npos)
    << outcome.error->message;
  EXPECT_FALSE(fs::exists(path)); // not created again, half of it
}

INSTANTIATE_TEST_SUITE_P(
  ways, vanished_storage_test,
  ::testing::Values(vanishing{"renamed_under_checkpoints",
                              [](auto& x) { fs::rename(x, x.string() + ".d"); },
                              0},
                    vanishing{"removed_under_metrics", remove, -1},
                    vanishing{"renamed_under_metrics",
                              [](auto& x) { fs::rename(x, x.string() + ".d"); },
                              -1}),
  [](auto& info) { return info.param.name; });

} // namespace troupe::internal::test
