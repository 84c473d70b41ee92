// How a run's journal gets to the disk, and what follows if it cannot.

#include <sys/stat.h>

#include <future>
#include <thread>

#include "tests/support/child.hpp"
#include "tests/unit/runtime/store/run_store_fixture.hpp"
#include "troupe/runtime/failpoint.hpp"

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::test;

TEST_F(run_store_test, appends_while_another_thread_commits) {
  auto store = open().value();
  ASSERT_TRUE(store->begin_attempt());
  std::thread committer{[&] {
    for (std::uint64_t i = 0; i < 20; ++i)
      EXPECT_TRUE(store->commit(0, with_checkpoint(0, i, {})));
  }};
  for (std::uint64_t i = 0; i < 2000; ++i)
    EXPECT_TRUE(store->append(0, metrics_only(i, {{{"x", 1}}})));
  committer.join();
  EXPECT_EQ(store->checkpoints().size(), 20u);
  EXPECT_EQ(store->current_result().head.metrics_history()->size(), 2000u);
}

TEST_F(run_store_test, makes_its_journal_durable_by_itself) {
  auto store = open().value();
  ASSERT_TRUE(store->begin_attempt());
  ASSERT_TRUE(store->append(0, metrics_only(0, {{{"x", 1}}})));
  std::promise<error> lost;
  store->on_loss([&](const error& x) { lost.set_value(x); });
  ASSERT_TRUE(arm_failpoint("journal.sync=eio"));
  auto why = lost.get_future().get(); // Who syncs? The store.
  ASSERT_TRUE(arm_failpoint(""));
  EXPECT_EQ(why.code, ec::storage);
  EXPECT_TRUE(mentions(why, "journal.jsonl"));
  // What the disk lost is not known: nothing more is acknowledged.
  EXPECT_EQ(store->append(0, metrics_only(1, {{{"x", 2}}})).error(), why);
  EXPECT_EQ(store->append_event("note", 0).error(), why);
  EXPECT_EQ(store->commit(0, with_checkpoint(0, 1, {})).error(), why);
}

// The kernel does not write again what a sync has lost.
TEST_F(run_store_test, writes_a_journal_again_if_a_sync_of_it_has_failed) {
  auto file = run / "journal.jsonl";
  auto inode_of = [](const fs::path& path) {
    struct stat found {};
    EXPECT_EQ(::stat(path.c_str(), &found), 0);
    return found.st_ino;
  };
  {
    auto store = open().value();
    ASSERT_TRUE(store->begin_attempt());
    ASSERT_TRUE(store->append(0, metrics_only(0, {{{"x", 1}}})));
    ASSERT_TRUE(arm_failpoint("journal.sync=eio"));
    EXPECT_FALSE(store->finish(run_status_kind::preempted));
    ASSERT_TRUE(arm_failpoint(""));
  }
  auto lines = bytes_of(file);
  auto lost = inode_of(file);
  // As a start leaves it that is killed while it copies.
  write_bytes(run / "half", lines.substr(0, 20));
  auto half = run / (".troupe-copy-" + std::to_string(inode_of(run / "half")));
  fs::rename(run / "half", half);
  {
    auto store = open().value();
    EXPECT_TRUE(bytes_of(file).starts_with(lines));
    EXPECT_FALSE(fs::exists(half));
    EXPECT_NE(inode_of(file), lost);
    lost = inode_of(file);
    EXPECT_EQ(store->next_report(), 1u);
    ASSERT_TRUE(store->begin_attempt());
    ASSERT_TRUE(store->finish(run_status_kind::preempted));
  }
  ASSERT_TRUE(open());
  EXPECT_EQ(inode_of(file), lost) << "once";
}

// A6: what report() returned for does not wait for a checkpoint.
TEST_F(run_store_test, makes_its_journal_durable_while_a_commit_waits) {
  auto store = open().value();
  ASSERT_TRUE(store->begin_attempt());
  ASSERT_TRUE(store->append(0, metrics_only(0, {{{"x", 1}}})));
  auto batch = with_checkpoint(0, 1, {{"x", 2}});
  std::promise<void> begun, end;
  store->stop_waiting_if([&, ended = end.get_future().share()] {
    begun.set_value();
    ended.wait();
    return true;
  });
  auto attempt =
    std::async(std::launch::async, [&] { return store->begin_attempt(); });
  begun.get_future().get();
  auto commit =
    std::async(std::launch::async, [&] { return store->commit(0, batch); });
  std::promise<error> lost;
  store->on_loss([&](const error& x) { lost.set_value(x); });
  ASSERT_TRUE(arm_failpoint("journal.sync=eio"));
  auto why = lost.get_future().get();
  ASSERT_TRUE(arm_failpoint(""));
  EXPECT_EQ(why.code, ec::storage);
  EXPECT_EQ(commit.wait_for(std::chrono::seconds{0}),
            std::future_status::timeout);
  end.set_value();
  EXPECT_FALSE(attempt.get());
  EXPECT_FALSE(commit.get());
}

TEST_F(run_store_test, notices_by_itself_that_its_folder_was_renamed) {
  auto store = open().value();
  std::promise<error> lost;
  store->on_loss([&](const error& x) { lost.set_value(x); });
  fs::rename(run, storage / "elsewhere");
  auto why = lost.get_future().get();
  EXPECT_EQ(why.code, ec::storage);
  EXPECT_TRUE(mentions(why, run.string()));
  EXPECT_FALSE(fs::exists(run));
}

TEST_F(run_store_test, syncs_what_callbacks_log_when_the_end_is_stored) {
  auto store = open().value();
  ASSERT_TRUE(store->begin_attempt());
  ASSERT_TRUE(store->finish(run_status_kind::preempted));
  std::promise<error> lost;
  store->on_loss([&](const error& x) { lost.set_value(x); });
  ASSERT_TRUE(store->append_event("callback_failed", 0));
  ASSERT_TRUE(arm_failpoint("journal.sync=eio"));
  auto why = lost.get_future().get(); // Who syncs? The store.
  ASSERT_TRUE(arm_failpoint(""));
  EXPECT_TRUE(mentions(why, "journal.jsonl"));
}

TEST_F(run_store_test, syncs_the_last_lines_before_it_is_released) {
  auto status = run_in_child([&] {
    auto store = open().value();
    (void) store->begin_attempt();
    (void) store->finish(run_status_kind::preempted);
    (void) store->append_event("callback_failed", 0);
    (void) arm_failpoint("journal.sync=kill");
    store->release();
  });
  EXPECT_TRUE(WIFSIGNALED(status));
}
