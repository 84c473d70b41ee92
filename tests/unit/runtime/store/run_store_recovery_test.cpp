// What a start finds and repairs of the driver before it.

#include "tests/support/child.hpp"
#include "tests/unit/runtime/store/run_store_fixture.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/storage/checksum.hpp"
#include "troupe/runtime/values/run_error.hpp"

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::test;

TEST_F(run_store_test, leaves_a_run_alone_whose_state_cannot_be_read) {
  ASSERT_TRUE(open().value()->finish(run_status_kind::finished));
  auto journal = bytes_of(run / "journal.jsonl");
  auto state = bytes_of(run / "state.json");
  ASSERT_TRUE(arm_failpoint("storage.look_up=eio"));
  auto again = open();
  ASSERT_TRUE(arm_failpoint(""));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ec::storage);
  EXPECT_TRUE(mentions(again.error(), "state.json: Input/output error"))
    << again.error().message;
  EXPECT_EQ(bytes_of(run / "journal.jsonl"), journal);
  EXPECT_EQ(bytes_of(run / "state.json"), state);
}

TEST_F(run_store_test, keeps_a_finished_run_finished_without_its_state) {
  {
    auto store = open().value();
    ASSERT_TRUE(store->begin_attempt());
    ASSERT_TRUE(
      test::store_batch(*store, 0, with_checkpoint(0, 0, {{"x", 1}})));
    ASSERT_TRUE(store->finish(run_status_kind::finished));
  }
  auto description = bytes_of(run / "run.json");
  for (auto damage : {"rotten", "lost"}) {
    if (damage == std::string{"lost"})
      fs::remove(run / "state.json");
    else
      write_bytes(run / "state.json", "{\"format\":9");
    auto again = open();
    ASSERT_FALSE(again) << damage;
    EXPECT_EQ(again.error().code, ec::conflict) << damage;
    auto found = result::from_path(run).value(); // rebuilt
    EXPECT_EQ(found.status, run_status_kind::finished);
    EXPECT_EQ(found.checkpoint->name(), "c0");
    EXPECT_EQ(found.metrics, (metrics{{"x", 1}}));
    EXPECT_EQ(bytes_of(run / "run.json"), description) << damage;
  }
}

TEST_F(run_store_test, resumes_all_but_finished_runs) {
  auto attempt = std::uint64_t{0};
  auto report = std::uint64_t{0};
  for (auto status : {run_status_kind::errored, run_status_kind::aborted,
                      run_status_kind::preempted, run_status_kind::running}) {
    auto store = open().value();
    auto start = store->begin_attempt().value();
    EXPECT_EQ(start.attempt, attempt);
    EXPECT_EQ(start.first_report, report);
    EXPECT_EQ(start.resume.has_value(), attempt > 0);
    ASSERT_TRUE(
      test::store_batch(*store, attempt, with_checkpoint(attempt, report, {})));
    ++report;
    ASSERT_TRUE(
      test::store_batch(*store, attempt, metrics_only(report, {{{"x", 7}}})));
    ++report;
    ++attempt;
    if (status != run_status_kind::running) {
      ASSERT_TRUE(store->finish(status, make_run_error({ec::storage, "why"})));
    }
  }
  auto store = open().value();
  EXPECT_EQ(store->last_metrics(), (metrics{{"x", 7}}));
  auto start = store->begin_attempt().value();
  EXPECT_EQ(start.attempt, 4u);
  EXPECT_EQ(start.first_report, 8u);
  EXPECT_EQ(start.resume->data.name(), "c6");
  EXPECT_EQ(store->current_result().head.metrics_history()->size(), 8u);
}

TEST_F(run_store_test, can_be_taken_over_after_its_driver_was_killed) {
  auto status = run_in_child([&] {
    auto store = open().value();
    auto start = store->begin_attempt().value();
    test::store_batch(*store, start.attempt, with_checkpoint(0, 0, {{"x", 1}}))
      .value();
    test::store_batch(*store, start.attempt, metrics_only(1, {{{"x", 2}}}))
      .value();
    kill(getpid(), SIGKILL);
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  auto store = open().value();
  EXPECT_EQ(store->last_metrics(), (metrics{{"x", 2}}));
  auto start = store->begin_attempt().value();
  EXPECT_EQ(start.attempt, 1u);
  EXPECT_EQ(start.first_report, 2u);
  EXPECT_EQ(start.resume->values, (metrics{{"x", 1}}));
  EXPECT_EQ(result::from_path(run)->status, run_status_kind::running);
}

TEST_F(run_store_test, resumes_a_run_whose_folder_was_given_another_name) {
  for (auto lost : {"", "state.json"}) {
    {
      auto store = open().value();
      ASSERT_TRUE(store->begin_attempt());
      for (auto i : {0, 1, 2, 3, 4})
        ASSERT_TRUE(
          test::store_batch(*store, 0, with_checkpoint(0, i, {{"x", i}})));
      ASSERT_TRUE(store->finish(run_status_kind::aborted));
    }
    auto moved = storage / "runs" / (std::string{"without "} + lost);
    fs::rename(run, moved);
    if (*lost)
      fs::remove(moved / lost);
    auto given = config();
    given.name = moved.filename().string();
    auto store = run_store::open(given).value();
    auto start = store->begin_attempt();
    ASSERT_TRUE(start) << start.error().message;
    ASSERT_TRUE(start->resume) << "without " << lost;
    EXPECT_EQ(start->resume->data.name(), "c4");
    EXPECT_EQ(start->first_report, 5u);
  }
}

TEST_F(run_store_test, adopts_no_checkpoint_of_another_run_of_its_name) {
  auto make = [&](std::uint64_t index) {
    auto store = open().value();
    ASSERT_TRUE(store->begin_attempt());
    ASSERT_TRUE(test::store_batch(*store, 0, with_checkpoint(0, index, {})));
  };
  make(9);
  auto theirs = storage / "theirs";
  fs::rename(run, theirs);
  make(0);
  fs::rename(theirs / "checkpoints/c9", run / "checkpoints/c9");
  fs::remove(run / "state.json");
  auto store = open().value();
  EXPECT_EQ(store->begin_attempt()->resume->data.name(), "c0");
  EXPECT_TRUE(fs::exists(run / "checkpoints/c9"));
  // Without its description, the run has no id of before to compare.
  store.reset();
  fs::remove(run / "state.json");
  fs::remove(run / "run.json");
  EXPECT_EQ(open().value()->begin_attempt()->resume->data.name(), "c9");
}

TEST_F(run_store_test, keeps_its_id_while_its_description_cannot_be_read) {
  auto id = open().value()->description().id;
  auto path = run / "run.json";
  auto bytes = bytes_of(path);
  fs::remove(path);
  fs::create_directory(path); // Opens, and cannot be read.
  EXPECT_FALSE(open());
  fs::remove(path);
  write_bytes(path, bytes);
  EXPECT_EQ(open().value()->description().id, id);
}

TEST_F(run_store_test, rebuilds_a_damaged_or_lost_state) {
  for (auto damage : {"damaged", "lost"}) {
    {
      auto store = open().value();
      auto start = store->begin_attempt().value();
      ASSERT_TRUE(test::store_batch(
        *store, start.attempt,
        with_checkpoint(start.attempt, start.first_report, {})));
    }
    auto before = load_run(run).value().value();
    if (damage == std::string{"lost"})
      fs::remove(run / "state.json");
    else
      write_bytes(run / "state.json", "{\"format\":1");
    EXPECT_EQ(result::from_path(run).error().code, ec::corrupt);
    auto store = open().value();
    auto events = store->take_events();
    ASSERT_FALSE(events.empty());
    EXPECT_EQ(events[0].kind, "state_rebuilt") << damage;
    auto start = store->begin_attempt().value();
    EXPECT_GE(start.attempt, before.next_attempt);
    EXPECT_EQ(start.first_report, before.next_report);
    EXPECT_EQ(*start.resume, before.checkpoints.back().unpacked());
    EXPECT_EQ(store->checkpoints(), before.checkpoints);
  }
}

TEST_F(run_store_test, reads_manifests_of_the_format_before) {
  {
    auto store = open().value();
    ASSERT_TRUE(store->begin_attempt());
    ASSERT_TRUE(
      test::store_batch(*store, 0, with_checkpoint(0, 0, {{"x", 1}})));
  }
  auto text = bytes_of(run / "checkpoints" / "c0" / "manifest.json");
  auto cut = [&](const std::string& from, const std::string& to) {
    auto begin = text.find(from);
    ASSERT_NE(begin, std::string::npos);
    text.erase(begin, text.find(to, begin) - begin);
  };
  cut("\"run_id\":", "\"attempt\""); // and the name
  cut("\"values\":", "\"files\"");
  text.erase(text.rfind(",\"sum\""));
  append_sum(text);
  write_bytes(run / "checkpoints" / "c0" / "manifest.json", text);
  fs::remove(run / "state.json");
  fs::remove(run / "journal.jsonl");
  auto store = open().value();
  EXPECT_EQ(store->begin_attempt()->resume->data.name(), "c0");
  EXPECT_EQ(store->last_metrics(), (metrics{{"x", 1}}));
}

TEST_F(run_store_test, keeps_failure_counts_for_the_next_driver) {
  auto status = run_in_child([&] {
    auto store = open().value();
    (void) store->begin_attempt().value();
    store->note_failures({2, 1});
    (void) store->begin_attempt().value();
    kill(getpid(), SIGKILL);
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  for (auto end : {run_status_kind::aborted, run_status_kind::errored}) {
    auto store = open().value();
    EXPECT_EQ(store->failures(), (failure_counts{2, 1}));
    ASSERT_TRUE(store->begin_attempt());
    ASSERT_TRUE(store->finish(end));
  }
  // Whoever starts a run again that its errors ended has seen them.
  EXPECT_EQ(open().value()->failures(), failure_counts{});
}

TEST_F(run_store_test, counts_the_failure_that_a_killed_driver_had_not_stored) {
  auto fail = [&](const metrics& fields, std::string_view before) {
    auto status = run_in_child([&] {
      auto store = open().value();
      auto attempt = store->begin_attempt().value().attempt;
      if (!before.empty())
        (void) store->append_event(before, attempt);
      (void) store->append_event("ranks_failed", attempt, fields);
      kill(getpid(), SIGKILL);
    });
    ASSERT_TRUE(WIFSIGNALED(status));
  };
  fail({{"reason", "rank 0: died"}}, {});
  EXPECT_EQ(open().value()->failures(), (failure_counts{1, 0}));
  EXPECT_EQ(open().value()->failures(), (failure_counts{1, 0})) << "once";
  fail({{"reason", "not up"}, {"started", false}}, {});
  EXPECT_EQ(open().value()->failures(), (failure_counts{1, 1}));
  fail({{"reason", "rank 0: left"}, {"started", true}}, "preempted");
  EXPECT_EQ(open().value()->failures(), (failure_counts{1, 1}));
  // The next attempt stores what was counted; its own has not failed.
  auto store = open().value();
  ASSERT_TRUE(store->begin_attempt());
  store.reset();
  EXPECT_EQ(open().value()->failures(), (failure_counts{1, 1}));
}

TEST_F(run_store_test, knows_its_checkpoints_of_before_an_id_was_lost) {
  for (auto again : {false, true}) {
    SCOPED_TRACE(again);
    {
      auto store = open().value();
      auto start = store->begin_attempt().value();
      ASSERT_TRUE(test::store_batch(
        *store, start.attempt,
        with_checkpoint(start.attempt, start.first_report, {})));
    }
    fs::remove(run / "run.json");
    auto made = open().value()->begin_attempt().value();
    ASSERT_TRUE(made.resume);
    fs::remove(run / "state.json"); // before the new id has a checkpoint
    auto left = open().value()->begin_attempt().value();
    ASSERT_TRUE(left.resume);
    EXPECT_EQ(left.resume->data.name(), made.resume->data.name());
  }
}
