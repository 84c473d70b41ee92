#include "troupe/runtime/store/callback_cursor.hpp"

#include <gmock/gmock.h>

#include "tests/support/checkpoint_files.hpp"
#include "tests/support/child.hpp"
#include "tests/support/pending_reports.hpp"
#include "tests/support/store_batch.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/runtime/failpoint.hpp"

namespace troupe::internal::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class callback_cursor_test : public testing::Test {
protected:
  void open() {
    store.reset(); // One driver at a time.
    run_config config;
    config.name = "r";
    config.storage_path = storage / "runs";
    config.checkpoint.num_to_keep = 1;
    store = run_store::open(config).value();
  }

  void SetUp() override {
    open();
    attempt = store->begin_attempt().value().attempt;
  }

  void report(std::uint64_t index) {
    report_batch batch;
    batch.index = index;
    batch.values = {{{"x", index}}, {{"x", index}}};
    batch.parts.resize(2);
    ASSERT_TRUE(store_batch(*store, attempt, batch));
  }

  void report_checkpoint(std::uint64_t index) {
    report_checkpoint(index, "c" + std::to_string(index));
  }

  void report_checkpoint(std::uint64_t index, const std::string& name) {
    auto batch = stage_batch(store->path(), attempt, index, name,
                             {{{"a", "1"}}, {{"b", "2"}}}, {{"x", index}});
    ASSERT_TRUE(store_batch(*store, attempt, batch.value()));
  }

  /// What the next driver of the run has to deliver.
  std::vector<pending_report> pending() {
    open();
    return pending_reports(*store);
  }

  static std::vector<std::uint64_t>
  indices(const std::vector<pending_report>& x) {
    std::vector<std::uint64_t> result;
    for (auto& report : x)
      result.push_back(report.batch.index);
    return result;
  }

  /// A driver that is killed when report *last* is stored: its callbacks have
  /// answered for *answered* reports.
  void die_before_callbacks(std::uint64_t last, std::uint64_t answered) {
    store.reset();
    auto status = run_in_child([&] {
      open();
      auto cursor = callback_cursor::open(*store).value();
      attempt = store->begin_attempt().value().attempt;
      for (std::uint64_t i = 0; i <= last; ++i) {
        report_checkpoint(i);
        if (i < answered && !cursor.mark_delivered(i))
          return;
      }
      raise(SIGKILL);
    });
    ASSERT_TRUE(WIFSIGNALED(status));
  }

  bool stays(const std::string& name) const {
    return fs::exists(store->path() / "checkpoints" / name);
  }

  std::size_t entries() const {
    return static_cast<std::size_t>(
      std::distance(fs::directory_iterator{store->path() / "checkpoints"},
                    fs::directory_iterator{}));
  }

  fs::path file() const { return store->path() / "callbacks.told"; }

  temporary_folder storage;
  std::unique_ptr<run_store> store;
  std::uint64_t attempt = 0;
};

TEST_F(callback_cursor_test, a_new_run_has_no_pending_report) {
  EXPECT_THAT(pending_reports(*store), IsEmpty());
}

TEST_F(callback_cursor_test,
       all_reports_from_a_skipped_callback_on_are_pending) {
  auto cursor = callback_cursor::open(*store).value();
  for (std::uint64_t i = 0; i < 4; ++i)
    report(i);
  ASSERT_TRUE(cursor.mark_delivered(0));
  EXPECT_THAT(cursor.skipped(), IsEmpty());
  ASSERT_TRUE(cursor.mark_delivered(1, {"callback 1 (slow)"}));
  ASSERT_TRUE(
    cursor.mark_delivered(2, {"callback 1 (slow)", "callback actor 1 (x)"}));
  ASSERT_TRUE(
    cursor.mark_delivered(3, {"callback 1 (slow)", "callback actor 1 (x)"}));
  EXPECT_THAT(
    cursor.skipped(),
    ElementsAre("not called for report 1 and later ones: callback 1 (slow)",
                "not called for report 2 and later ones: callback actor 1 "
                "(x)"));
  EXPECT_THAT(indices(pending()), ElementsAre(1, 2, 3));
}

TEST_F(callback_cursor_test, a_stored_report_that_callbacks_missed_is_pending) {
  auto cursor = callback_cursor::open(*store).value();
  for (std::uint64_t i = 0; i < 4; ++i)
    report(i);
  ASSERT_TRUE(cursor.mark_delivered(0));
  ASSERT_TRUE(cursor.mark_delivered(1));
  auto owed = pending();
  ASSERT_THAT(indices(owed), ElementsAre(2, 3));
  EXPECT_EQ(owed[0].batch.attempt, attempt);
  EXPECT_THAT(owed[0].batch.values,
              ElementsAre(metrics{{"x", 2}}, metrics{{"x", 2}}));
  EXPECT_THAT(indices(pending()), ElementsAre(2, 3)) << "without a cursor";
}

TEST_F(callback_cursor_test, a_pending_report_is_returned_once) {
  auto cursor = callback_cursor::open(*store).value();
  report(0);
  open();
  auto next = callback_cursor::open(*store).value();
  EXPECT_THAT(indices(take_pending(next)), ElementsAre(0));
  EXPECT_THAT(take_pending(next), IsEmpty());
  ASSERT_TRUE(next.mark_delivered(0));
  EXPECT_THAT(pending(), IsEmpty());
}

TEST_F(callback_cursor_test,
       a_pending_report_has_its_checkpoint_if_that_is_kept) {
  report_checkpoint(0);
  report_checkpoint(1);
  report(2);
  auto owed = pending();
  ASSERT_THAT(indices(owed), ElementsAre(0, 1, 2));
  EXPECT_FALSE(owed[0].data) << "evicted by a driver without callbacks";
  ASSERT_TRUE(owed[1].data);
  EXPECT_EQ(owed[1].data->name(), "c1");
  EXPECT_FALSE(owed[2].data) << "never had one";
}

TEST_F(callback_cursor_test, a_checkpoint_stays_until_callbacks_have_answered) {
  auto stays = [this](int i) { return this->stays("c" + std::to_string(i)); };
  auto cursor = callback_cursor::open(*store).value();
  for (std::uint64_t i = 0; i < 3; ++i)
    report_checkpoint(i);
  EXPECT_TRUE(stays(0) && stays(1) && stays(2));
  ASSERT_TRUE(cursor.mark_delivered(0));
  report_checkpoint(3);
  EXPECT_TRUE(!stays(0) && stays(1) && stays(2));
  // One that was given up keeps none.
  ASSERT_TRUE(cursor.mark_delivered(1, {"callback 1 (slow)"}));
  report_checkpoint(4);
  EXPECT_TRUE(!stays(1) && stays(2) && stays(3));
  // A run that was asked to go ends before its callbacks are through: the next
  // driver replays what they have missed.
  ASSERT_TRUE(store->finish(run_status_kind::aborted));
  ASSERT_TRUE(cursor.mark_delivered(2));
  store->release();
  EXPECT_TRUE(!stays(2) && stays(3) && stays(4));
  open();
  ASSERT_TRUE(callback_cursor::open(*store));
  ASSERT_TRUE(store->finish(run_status_kind::finished));
  store->release();
  EXPECT_TRUE(!stays(3) && stays(4));
}

TEST_F(callback_cursor_test, the_next_driver_replays_evicted_checkpoints) {
  die_before_callbacks(5, 2);
  for (auto driver :
       {"the next one", "one after it, killed during the replay"}) {
    SCOPED_TRACE(driver);
    store.reset();
    auto status = run_in_child([&] {
      open();
      auto cursor = callback_cursor::open(*store).value();
      attempt = store->begin_attempt().value().attempt;
      auto owed = take_pending(cursor);
      EXPECT_THAT(indices(owed), ElementsAre(2, 3, 4, 5));
      for (auto& x : owed) {
        ASSERT_TRUE(x.data) << x.batch.index;
        EXPECT_EQ(x.data->name(), "c" + std::to_string(x.batch.index));
        EXPECT_TRUE(x.data->verify()) << x.batch.index;
      }
      raise(testing::Test::HasFailure() ? SIGABRT : SIGKILL);
    });
    ASSERT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(WTERMSIG(status), SIGKILL);
  }
  // What is answered goes with the next commit, the rest at the end.
  open();
  auto cursor = callback_cursor::open(*store).value();
  attempt = store->begin_attempt().value().attempt;
  EXPECT_EQ(entries(), 4u);
  ASSERT_TRUE(cursor.mark_delivered(2));
  report_checkpoint(6);
  EXPECT_TRUE(!stays("c2") && stays("c3") && stays("c4") && stays("c5"));
  for (std::uint64_t i = 3; i < 7; ++i)
    ASSERT_TRUE(cursor.mark_delivered(i));
  ASSERT_TRUE(store->finish(run_status_kind::finished));
  store->release();
  EXPECT_EQ(entries(), 1u);
}

TEST_F(callback_cursor_test, a_stop_ends_the_look_at_evicted_checkpoints) {
  die_before_callbacks(5, 2);
  open();
  auto asked = 0;
  store->stop_waiting_if([&] { return ++asked == 2; });
  auto cursor = callback_cursor::open(*store);
  ASSERT_FALSE(cursor);
  EXPECT_EQ(cursor.error().code, ec::stopped);
  EXPECT_EQ(asked, 2);
  store->release();
  EXPECT_EQ(entries(), 4u);
  auto owed = pending();
  ASSERT_THAT(indices(owed), ElementsAre(2, 3, 4, 5));
  for (auto& x : owed)
    EXPECT_TRUE(x.data) << x.batch.index;
}

TEST_F(callback_cursor_test, a_damaged_evicted_checkpoint_is_noted_as_missing) {
  die_before_callbacks(4, 1);
  auto path = storage / "runs/r/checkpoints";
  write_bytes(path / "c2" / "a", "other");
  fs::remove_all(path / "c3");
  open();
  auto cursor = callback_cursor::open(*store).value();
  auto events = store->take_events();
  EXPECT_EQ(
    std::ranges::count(events, "checkpoint_missing", &store_event::kind), 2);
  ASSERT_TRUE(store->begin_attempt());
  auto owed = take_pending(cursor);
  ASSERT_THAT(indices(owed), ElementsAre(1, 2, 3, 4));
  EXPECT_TRUE(owed[0].data && !owed[1].data && !owed[2].data && owed[3].data);
  EXPECT_TRUE(stays("c1") && !stays("c2") && stays("c4"));
}

TEST_F(callback_cursor_test, a_checkpoint_whose_removal_was_begun_comes_back) {
  store.reset();
  auto status = run_in_child([&] {
    open();
    auto cursor = callback_cursor::open(*store).value();
    attempt = store->begin_attempt().value().attempt;
    report_checkpoint(0, "best");
    report_checkpoint(1, "other");
    (void) arm_failpoint("commit.evicting");
    report_checkpoint(2, "best");
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  auto owed = pending();
  ASSERT_THAT(indices(owed), ElementsAre(0, 1));
  ASSERT_TRUE(owed[0].data && owed[1].data);
  EXPECT_TRUE(owed[0].data->verify());
}

TEST_F(callback_cursor_test, a_newest_one_that_is_rotten_is_not_passed_on) {
  die_before_callbacks(2, 0);
  write_bytes(storage / "runs/r/checkpoints/c2/a", "other");
  open();
  auto cursor = callback_cursor::open(*store).value();
  EXPECT_EQ(store->begin_attempt().value().resume->data.name(), "c1");
  auto owed = take_pending(cursor);
  ASSERT_THAT(indices(owed), ElementsAre(0, 1, 2));
  EXPECT_TRUE(owed[0].data && owed[1].data && !owed[2].data);
}

TEST_F(callback_cursor_test, a_driver_without_callbacks_removes_evicted_ones) {
  die_before_callbacks(3, 0);
  open();
  EXPECT_EQ(entries(), 4u);
  ASSERT_TRUE(open_callback_cursor(*store, false));
  ASSERT_TRUE(store->begin_attempt());
  EXPECT_EQ(entries(), 1u);
}

TEST_F(callback_cursor_test, a_report_does_not_come_with_that_of_another) {
  auto cursor = callback_cursor::open(*store).value();
  report_checkpoint(0, "best");
  report_checkpoint(1, "other");
  report_checkpoint(2, "best");
  auto owed = pending();
  ASSERT_THAT(indices(owed), ElementsAre(0, 1, 2));
  EXPECT_FALSE(owed[0].data) << "evicted, and its name is report 2's";
  EXPECT_TRUE(owed[1].data);
  ASSERT_TRUE(owed[2].data);
}

TEST_F(callback_cursor_test,
       a_driver_without_callbacks_leaves_no_pending_report) {
  ASSERT_TRUE(callback_cursor::mark_all_delivered(*store));
  report(0);
  report(1);
  EXPECT_THAT(pending(), IsEmpty());
  auto cursor = callback_cursor::open(*store).value();
  report(2);
  EXPECT_THAT(indices(pending()), ElementsAre(2));
}

TEST_F(callback_cursor_test, without_a_count_all_reports_are_delivered_again) {
  report(0);
  report(1);
  for (auto left : {std::string{}, std::string(21, '\0')}) {
    write_bytes(file(), left);
    EXPECT_THAT(indices(pending()), ElementsAre(0, 1)) << left.size();
  }
}

// After a power cut the count of a driver without callbacks would be back, and
// with it reports left out.
TEST_F(callback_cursor_test, N4_a_count_is_lowered_durably) {
  ASSERT_TRUE(callback_cursor::mark_all_delivered(*store));
  report(0);
  auto before = bytes_of(file());
  open();
  ASSERT_TRUE(arm_failpoint("storage.sync_file=eio"));
  auto cursor = callback_cursor::open(*store);
  ASSERT_TRUE(arm_failpoint(""));
  ASSERT_FALSE(cursor) << "it was not made durable";
  EXPECT_EQ(bytes_of(file()), before);
  auto again = callback_cursor::open(*store);
  ASSERT_TRUE(again) << again.error().message;
  attempt = store->begin_attempt().value().attempt;
  report(1);
  report(2);
  ASSERT_TRUE(again->mark_delivered(1));
  EXPECT_THAT(indices(pending()), ElementsAre(2));
}

TEST_F(callback_cursor_test, a_damaged_count_is_named_with_what_to_do) {
  for (auto text :
       {"7", "0000000000000000000x\n", "00000000000000000001\n\n"}) {
    write_bytes(file(), text);
    auto cursor = callback_cursor::open(*store);
    ASSERT_FALSE(cursor) << text;
    EXPECT_EQ(cursor.error().code, ec::corrupt);
    EXPECT_THAT(
      cursor.error().message,
      testing::AllOf(HasSubstr(file().string()), HasSubstr("remove")));
  }
}

} // namespace
} // namespace troupe::internal::test
