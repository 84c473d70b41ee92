// A run's storage from its begin to its end.

#include <set>

#include "tests/support/sanitized.hpp"
#include "tests/support/small_disk.hpp"
#include "tests/unit/runtime/store/run_store_fixture.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/store/journal_reader.hpp"
#include "troupe/runtime/store/saved_run.hpp"
#include "troupe/runtime/values/run_error.hpp"

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::test;

TEST_F(run_store_test, takes_a_run_from_its_begin_to_its_result) {
  auto store = open().value();
  EXPECT_EQ(store->path(), run);
  for (auto folder : {"logs", "checkpoints", "sinks"})
    EXPECT_TRUE(fs::is_directory(run / folder)) << folder;
  EXPECT_NE(bytes_of(run / "run.json").find(R"({\"lr\":0.1})"),
            std::string::npos);
  auto start = store->begin_attempt().value();
  EXPECT_EQ(start.attempt, 0u);
  EXPECT_EQ(start.first_report, 0u);
  EXPECT_FALSE(start.resume);
  ASSERT_TRUE(
    test::store_batch(*store, 0, metrics_only(0, {{{"x", 1}}, {{"x", 2}}})));
  auto committed =
    test::store_batch(*store, 0, with_checkpoint(0, 1, {{"x", 3}}));
  ASSERT_TRUE(committed) << committed.error().message;
  ASSERT_TRUE(*committed);
  ASSERT_TRUE(
    test::store_batch(*store, 0, metrics_only(2, {{{"x", 4}}, {{"x", 5}}})));
  auto done = store->finish(run_status_kind::finished);
  ASSERT_TRUE(done) << done.error().message;
  store.reset();
  for (auto& x : {done->unpacked(), result::from_path(run).value()}) {
    EXPECT_EQ(x.status, run_status_kind::finished);
    EXPECT_EQ(x.metrics, (metrics{{"x", 4}}));
    EXPECT_EQ(x.checkpoint, (*committed)->data);
    EXPECT_EQ(x.best_checkpoints, std::vector{(*committed)->unpacked()});
    EXPECT_EQ(x.best_checkpoint().value(), (*committed)->unpacked());
    EXPECT_EQ(x.path, run);
    EXPECT_EQ(x.attempts, 1u);
    EXPECT_FALSE(x.error);
    EXPECT_EQ(&x.value_or_throw(), &x);
    auto history = x.metrics_history().value();
    ASSERT_EQ(history.size(), 3u);
    EXPECT_EQ(history[0].values,
              (std::vector<metrics>{{{"x", 1}}, {{"x", 2}}}));
    EXPECT_EQ(history[1].checkpoint, "c1");
    EXPECT_EQ(history[2].index, 2u);
  }
}

TEST_F(run_store_test, refuses_the_name_of_a_finished_run) {
  ASSERT_TRUE(open().value()->finish(run_status_kind::finished));
  auto before = bytes_of(run / "journal.jsonl");
  auto again = open();
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ec::conflict);
  EXPECT_TRUE(mentions(again.error(), "choose another run.name"));
  EXPECT_EQ(result::from_path(run)->best_checkpoint().error().code,
            ec::invalid_argument);
  EXPECT_EQ(bytes_of(run / "journal.jsonl"), before);
}

TEST_F(run_store_test, numbers_the_runs_after_a_finished_one_if_asked) {
  auto with = config();
  with.if_finished = if_finished::number;
  auto open_one = [&] { return run_store::open(with).value(); };
  EXPECT_EQ(open_one()->path(), run); // Not finished: it is resumed.
  ASSERT_TRUE(open_one()->finish(run_status_kind::finished));
  auto before = bytes_of(run / "journal.jsonl");
  EXPECT_EQ(open_one()->path(), storage / "runs" / "r-2");
  auto second = open_one(); // It was interrupted.
  EXPECT_EQ(second->path(), storage / "runs" / "r-2");
  EXPECT_EQ(run_store::open(with).error().code, ec::conflict); // It is held.
  ASSERT_TRUE(second->finish(run_status_kind::finished));
  second.reset();
  EXPECT_EQ(open_one()->path(), storage / "runs" / "r-3");
  EXPECT_EQ(bytes_of(run / "journal.jsonl"), before);
}

TEST_F(run_store_test, replaces_a_finished_run_if_asked) {
  auto with = config();
  with.if_finished = if_finished::replace;
  auto first = run_store::open(with).value();
  auto id = first->description().id;
  ASSERT_TRUE(first->append_event("mine", 0));
  first.reset();
  auto second = run_store::open(with).value(); // Not finished: it stays.
  EXPECT_EQ(second->description().id, id);
  EXPECT_EQ(run_store::open(with).error().code, ec::conflict); // It is held.
  ASSERT_TRUE(second->finish(run_status_kind::finished));
  second.reset();
  auto third = run_store::open(with).value();
  EXPECT_EQ(third->path(), run);
  EXPECT_NE(third->description().id, id);
  EXPECT_EQ(bytes_of(run / "journal.jsonl").find("mine"), std::string::npos);
  auto names = fs::directory_iterator{storage / "runs"};
  EXPECT_EQ(std::distance(begin(names), end(names)), 1);
}

TEST_F(run_store_test, refuses_a_config_that_no_reader_would_take) {
  if (sanitized)
    GTEST_SKIP() << "escaping 64 MiB takes a sanitizer 11 s";
  auto config_text = "\"" + std::string(64 * 1024 * 1024, 'x') + "\"";
  auto found = run_store::open(config(), config_text);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ec::storage);
  EXPECT_NE(found.error().message.find("run.json"), std::string::npos);
  EXPECT_TRUE(open()); // Nothing of it stays in the way.
}

TEST_F(run_store_test, gives_the_error_of_a_failed_run_back) {
  auto store = open().value();
  auto why = make_run_error(
    {{0, {rank_failure::kind_type::signal, 9, "", 1, "h"}}}, run);
  auto done = store->finish(run_status_kind::errored, why)->unpacked();
  EXPECT_EQ(done.error, why);
  EXPECT_THROW(done.value_or_throw(), run_failed);
  EXPECT_EQ(result::from_path(run)->error, why);
}

TEST_F(run_store_test, names_the_driver_that_holds_the_run) {
  auto store = open().value();
  auto other = open();
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ec::conflict);
  EXPECT_TRUE(mentions(other.error(), "pid " + std::to_string(getpid())));
  store.reset();
  EXPECT_TRUE(open());
}

TEST_F(run_store_test, a_run_whose_end_cannot_be_written_has_not_finished) {
  {
    auto store = open().value();
    ASSERT_TRUE(store->begin_attempt());
    ASSERT_TRUE(arm_failpoint("journal.append:1+=enospc"));
    EXPECT_FALSE(store->finish(run_status_kind::finished));
    ASSERT_TRUE(arm_failpoint(""));
  }
  EXPECT_EQ(result::from_path(run)->status, run_status_kind::errored);
  auto again = open();
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_TRUE((*again)->begin_attempt());
}

TEST_F(run_store_test, journals_no_end_that_could_not_be_stored) {
  for (auto fault : {"storage.write=enospc", "journal.sync=eio"}) {
    {
      auto store = open().value();
      ASSERT_TRUE(store->begin_attempt());
      ASSERT_TRUE(arm_failpoint(fault));
      EXPECT_FALSE(store->finish(run_status_kind::finished)) << fault;
      ASSERT_TRUE(arm_failpoint(""));
    }
    auto end = read_last_attempt(run / "journal.jsonl").value().end;
    ASSERT_TRUE(end) << fault;
    EXPECT_EQ(end->fields.at("status"), metric_value{"errored"}) << fault;
    EXPECT_TRUE(end->fields.find("error")) << fault;
    ASSERT_TRUE(open()) << fault;
  }
}

TEST_F(run_store_test, its_state_says_no_other_end_than_it_returns) {
  {
    auto store = open().value();
    ASSERT_TRUE(store->begin_attempt());
    // That of the folder: the new state has its name by then.
    ASSERT_TRUE(arm_failpoint("storage.sync_file:2=eio"));
    EXPECT_FALSE(store->finish(run_status_kind::finished));
    ASSERT_TRUE(arm_failpoint(""));
  }
  auto end = result::from_path(run);
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_EQ(end->status, run_status_kind::errored);
  EXPECT_TRUE(end->error);
  EXPECT_TRUE(open()) << "it is not over";
}

// Between the two, the journal gets another end.
TEST_F(run_store_test, an_end_that_is_saved_again_says_what_failed_meanwhile) {
  {
    auto store = open().value();
    ASSERT_TRUE(store->begin_attempt());
    store->note_stop("it was good enough");
    ASSERT_TRUE(arm_failpoint("storage.sync_file:2=eio,journal.sync:2=eio"));
    EXPECT_FALSE(store->finish(run_status_kind::finished));
    ASSERT_TRUE(arm_failpoint(""));
  }
  auto state = load_run(run).value().value();
  EXPECT_EQ(state.status, run_status_kind::errored);
  EXPECT_EQ(state.stop_reason, "") << "only a finished run has one";
  EXPECT_TRUE(state.journal_unsynced);
}

TEST_F(run_store_test, skips_damaged_lines_of_its_history_and_says_so) {
  auto store = open().value();
  ASSERT_TRUE(store->begin_attempt());
  for (std::uint64_t i = 0; i < 4; ++i)
    ASSERT_TRUE(store->append(0, metrics_only(i, {{{"x", i}}})));
  auto journal = run / "journal.jsonl";
  EXPECT_TRUE(store->current_result().head.metrics_history()->damaged.empty());
  auto bytes = bytes_of(journal);
  bytes[bytes.find("\"batch\":1") + 2] ^= 1;
  write_bytes(journal, bytes);
  auto history = store->current_result().head.metrics_history();
  ASSERT_TRUE(history) << history.error().message;
  ASSERT_EQ(history->size(), 3u);
  EXPECT_EQ((*history)[1].index, 2u);
  ASSERT_EQ(history->damaged.size(), 1u);
  EXPECT_NE(history->damaged[0].find("journal.jsonl line 4 "),
            std::string::npos)
    << history->damaged[0];
}

TEST_F(run_store_test, gives_every_run_without_a_name_one_of_its_own) {
  auto unnamed = config();
  unnamed.name.reset();
  std::set<std::string> names;
  for (int i = 0; i < 5; ++i) {
    auto store = run_store::open(unnamed);
    ASSERT_TRUE(store) << store.error().message;
    EXPECT_EQ((*store)->path().parent_path(), storage / "runs");
    EXPECT_EQ((*store)->path().filename(), (*store)->description().name);
    names.insert((*store)->description().name);
    ASSERT_TRUE((*store)->finish(run_status_kind::finished));
  }
  EXPECT_EQ(names.size(), 5u);
}

TEST_F(run_store_test, says_of_a_run_that_was_given_up_how_it_ended) {
  auto give_up = [this](const char* why) {
    auto store = open().value();
    store->stop_waiting();
    EXPECT_EQ(store->begin_attempt().error().code, ec::stopped);
    EXPECT_TRUE(store->note_given_up(run_status_kind::preempted,
                                     make_run_error({ec::stopped, why})));
  };
  give_up("SIGTERM came");
  auto left = result::from_path(run).value();
  EXPECT_EQ(left.status, run_status_kind::preempted);
  EXPECT_EQ(left.error->message, "SIGTERM came");
  {
    auto store = open().value();
    EXPECT_EQ(store->begin_attempt().value().attempt, 0u);
    ASSERT_TRUE(store->finish(run_status_kind::errored,
                              make_run_error({ec::storage, "a full disk"})));
  }
  give_up("SIGTERM came again");
  left = result::from_path(run).value();
  EXPECT_EQ(left.status, run_status_kind::errored);
  EXPECT_EQ(left.error->message, "a full disk");
}

TEST_F(run_store_test, gives_its_name_back_when_it_is_released) {
  auto store = open().value();
  auto start = store->begin_attempt().value();
  ASSERT_TRUE(store->finish(run_status_kind::aborted));
  EXPECT_FALSE(open());
  store->release();
  auto next = open();
  ASSERT_TRUE(next) << next.error().message;
  EXPECT_EQ((*next)->begin_attempt()->attempt, start.attempt + 1);
  EXPECT_FALSE(store->append(0, metrics_only(0, {{{"x", 1}}})));
  EXPECT_FALSE(store->finish(run_status_kind::errored));
  EXPECT_TRUE((*next)->append_event("still_mine", 1));
}

TEST_F(run_store_test, a_start_that_fails_after_its_claim_leaves_none) {
  auto store = open().value();
  EXPECT_TRUE(latest_claim(run).value());
  store.reset(); // As if its trackers or its ports failed.
  EXPECT_FALSE(latest_claim(run).value());
  fs::remove(run / "run.json");
  fs::create_directory(run / "run.json"); // Read once the claim is made.
  EXPECT_FALSE(open());
  EXPECT_TRUE(fs::exists(run / "attempts" / "1"));
  EXPECT_FALSE(latest_claim(run).value());
}

TEST_F(run_store_test, says_why_a_storage_cannot_be_used) {
  auto bad = config();
  write_bytes(storage / "file", "x");
  bad.storage_path = storage / "file";
  auto store = run_store::open(bad);
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, ec::storage);
  EXPECT_TRUE(mentions(store.error(), (storage / "file").string()));
}

TEST_F(run_store_test, reports_that_a_storage_is_full_or_read_only) {
  small_disk disk{storage / "disk", "128k"};
  if (!disk)
    GTEST_SKIP() << "mounting a small tmpfs: " << disk.reason();
  auto bad = config();
  bad.storage_path = disk.path();
  write_bytes(disk.path() / "filler",
              std::string(fs::space(disk.path()).available, 'x'));
  auto full = run_store::open(bad);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, ec::storage);
  ASSERT_TRUE(disk.make_read_only());
  bad.name = "another";
  auto read_only = run_store::open(bad);
  ASSERT_FALSE(read_only);
  EXPECT_TRUE(mentions(read_only.error(), "Read-only file system"));
}

TEST_F(run_store_test, distinguishes_why_a_folder_has_no_result) {
  auto missing = result::from_path(storage / "none");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ec::storage);
  EXPECT_TRUE(mentions(missing.error(), "there is no folder"));
  auto other = result::from_path(storage.path());
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ec::invalid_argument);
  EXPECT_TRUE(mentions(other.error(), "is not the folder of a run"));
  open().value();
  fs::remove(run / "state.json");
  auto lost = result::from_path(run);
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, ec::corrupt);
  EXPECT_TRUE(mentions(lost.error(), "lost its state.json"));
}
