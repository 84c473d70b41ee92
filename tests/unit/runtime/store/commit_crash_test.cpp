#include <gtest/gtest.h>

#include <signal.h>

#include <set>

#include "tests/support/checkpoint_files.hpp"
#include "tests/support/child.hpp"
#include "tests/support/saved_state.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/store/checkpoint_store.hpp"

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::test;

namespace {

checkpoint_store open(const fs::path& run) {
  auto state = load_run(run).value().value_or(saved_run{});
  return checkpoint_store::open(held(run), {"r"}, {1, "", score_order::max},
                                std::move(state), saves_in(run))
    .value();
}

report_batch batch(const fs::path& run, std::uint64_t attempt,
                   std::uint64_t index) {
  return stage_batch(run, attempt, index, "c" + std::to_string(index),
                     {{{"a", std::to_string(index)}}, {{"s/b", "b"}}})
    .value();
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> result;
  for (auto& x : fs::directory_iterator{folder})
    result.insert(x.path().filename().string());
  return result;
}

} // namespace

// Commits c0 and, in a process that dies *somewhere* in it, c1.
void die_committing(const fs::path& run, const std::string& somewhere) {
  {
    auto store = open(run);
    ASSERT_EQ(store.begin_attempt(0).value(), 0u);
    ASSERT_TRUE(store.commit(0, batch(run, 0, 0)));
  }
  auto status = run_in_child([&] {
    auto store = open(run);
    auto attempt = store.begin_attempt(0).value();
    auto next = batch(run, attempt, 1);
    if (!arm_failpoint(somewhere))
      return;
    (void) store.commit(attempt, next);
  });
  ASSERT_TRUE(WIFSIGNALED(status)) << "never came to " << somewhere;
  ASSERT_EQ(WTERMSIG(status), SIGKILL);
}

// The run is intact, and can continue.
void expect_whole(const fs::path& run) {
  auto store = open(run);
  auto resume = store.resume_checkpoint().value();
  ASSERT_TRUE(resume);
  EXPECT_TRUE(resume->index == 0 || resume->index == 1);
  EXPECT_EQ(bytes_of(resume->data.path() / "a"), std::to_string(resume->index));
  std::set<std::string> registered;
  for (auto& x : store.registry().all()) {
    EXPECT_TRUE(x.data.verify());
    registered.insert(x.data.name());
  }
  EXPECT_EQ(names_in(run / "checkpoints"), registered);
  auto attempt = store.begin_attempt(0).value();
  EXPECT_GE(attempt, 2u);
  auto index = store.state().next_report;
  EXPECT_GT(index, resume->index);
  EXPECT_TRUE(store.commit(attempt, batch(run, attempt, index)));
}

class commit_crash_test : public testing::TestWithParam<const char*> {};

// N1, N2, N3: whatever step the process dies after, a reader finds the
// checkpoint that was acknowledged or the one under way, whole.
TEST_P(commit_crash_test, leaves_the_old_checkpoint_or_the_new_one) {
  temporary_folder run;
  die_committing(run.path(), GetParam());
  expect_whole(run.path());
}

// The next driver dies, too, at any step of its recovery.
TEST_P(commit_crash_test, survives_a_second_death) {
  for (auto second : {"replace.written", "replace.renamed", "replace.renamed:2",
                      "commit.evicting"}) {
    temporary_folder run;
    die_committing(run.path(), GetParam());
    auto status = run_in_child([&] {
      if (!arm_failpoint(second))
        return;
      auto store = open(run.path());
      (void) store.resume_checkpoint();
      (void) store.begin_attempt(0);
    });
    EXPECT_TRUE(WIFSIGNALED(status) || WIFEXITED(status));
    expect_whole(run.path());
  }
}

INSTANTIATE_TEST_SUITE_P(
  every_step, commit_crash_test,
  testing::Values("commit.begun", "commit.gathered", "commit.manifest_written",
                  "commit.gathered_durably", "commit.renamed",
                  "commit.parent_synced", "replace.written", "replace.renamed",
                  "commit.state_saved", "commit.evicting"),
  [](const auto& info) {
    std::string name = info.param;
    std::ranges::replace(name, '.', '_');
    return name;
  });

// A3: a disk that begins to fail at one fsync of a commit and fails until its
// process has ended loses no acknowledged checkpoint.
TEST(failing_disk_test, loses_no_acknowledged_checkpoint) {
  auto deaths = 0;
  for (auto nth = 1; nth < 30; ++nth) {
    temporary_folder run;
    {
      auto store = open(run.path());
      ASSERT_EQ(store.begin_attempt(0).value(), 0u);
      ASSERT_TRUE(store.commit(0, batch(run.path(), 0, 0)));
    }
    auto status = run_in_child([&] {
      auto store = open(run.path());
      auto attempt = store.begin_attempt(0).value();
      auto next = batch(run.path(), attempt, 1);
      (void) arm_failpoint("storage.sync_file:" + std::to_string(nth)
                           + "+=eio");
      if (store.commit(attempt, next))
        _exit(2);
    });
    ASSERT_TRUE(WIFEXITED(status));
    expect_whole(run.path());
    if (WEXITSTATUS(status) == 2)
      break;
    ++deaths;
  }
  EXPECT_GE(deaths, 6);
  EXPECT_LT(deaths, 29);
}
