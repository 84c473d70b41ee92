// What a start adds to the journal of the driver before it.

#include <algorithm>

#include "tests/support/child.hpp"
#include "tests/support/pending_reports.hpp"
#include "tests/unit/runtime/store/run_store_fixture.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/store/journal_reader.hpp"
#include "troupe/runtime/values/run_error.hpp"

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::test;

std::string shown(run_store& store) {
  std::string result;
  for (auto& x : store.take_events())
    result += to_string(x) + '\n';
  return result;
}

TEST_F(run_store_test, tells_that_the_journal_or_the_description_was_lost) {
  {
    auto store = open().value();
    auto start = store->begin_attempt().value();
    ASSERT_TRUE(test::store_batch(*store, start.attempt,
                                  with_checkpoint(start.attempt, 0, {})));
    ASSERT_TRUE(store->finish(run_status_kind::aborted, {}));
  }
  EXPECT_EQ(shown(*open().value()), "");
  fs::remove(run / "journal.jsonl");
  auto said = shown(*open().value());
  EXPECT_EQ(said.find("journal.jsonl is missing"), 0u) << said;
  EXPECT_NE(said.find("report 0 was not in the journal"), said.npos) << said;
  EXPECT_NE(bytes_of(run / "journal.jsonl").find("journal_lost"),
            std::string::npos);
  for (auto damage : {"damaged", "lost"}) {
    if (damage == std::string{"lost"})
      fs::remove(run / "run.json");
    else
      write_bytes(run / "run.json", "{\"format\":1");
    said = shown(*open().value());
    EXPECT_EQ(said.find("the run has a new id"), 0u) << damage << said;
    EXPECT_EQ(shown(*open().value()), "");
  }
}

TEST_F(run_store_test, tells_how_a_driver_differs_from_the_one_before) {
  {
    auto store = run_store::open(config(), "{\"lr\":1}", 2).value();
    auto start = store->begin_attempt().value();
    auto batch = with_checkpoint(start.attempt, 0, {});
    batch.values.resize(2);
    ASSERT_TRUE(test::store_batch(*store, start.attempt, batch));
    ASSERT_TRUE(store->finish(run_status_kind::aborted, {}));
  }
  EXPECT_EQ(shown(*run_store::open(config(), "{\"lr\":1}", 2).value()), "");
  EXPECT_EQ(shown(*run_store::open(config(), "{\"lr\":2}", 3).value()),
            "this driver differs from that of attempt 0: another config of the "
            "loop, 3 ranks instead of 2\n");
  EXPECT_NE(bytes_of(run / "journal.jsonl").find("run_changed"),
            std::string::npos);
}

// A5: a report whose checkpoint is found again has its line, too.
TEST_F(run_store_test, completes_the_journal_of_a_driver_killed_in_a_commit) {
  std::uint64_t index = 0;
  auto completed = 0;
  for (auto moment :
       {"commit.begun", "commit.manifest_written", "commit.renamed",
        "commit.parent_synced", "replace.written", "replace.renamed",
        "commit.state_saved", "commit.evicting", "journal.append"}) {
    auto values = metrics{{"moment", moment}};
    auto status = run_in_child([&] {
      auto setup = config();
      setup.checkpoint.num_to_keep = 1;
      auto store = run_store::open(setup).value();
      auto start = store->begin_attempt().value();
      auto first = with_checkpoint(start.attempt, start.first_report, {});
      test::store_batch(*store, start.attempt, first).value();
      auto next = with_checkpoint(start.attempt, first.index + 1, values);
      next.values[1] = {{"rank", 1}};
      next.step_s = {0.5, 0.25};
      next.wait_s = 0.125;
      (void) arm_failpoint(moment);
      (void) test::store_batch(*store, start.attempt, next);
    });
    ASSERT_TRUE(WIFSIGNALED(status)) << moment;
    auto store = open().value();
    auto rows = store->current_result().head.metrics_history().value();
    ++index; // of `first`
    ASSERT_GE(rows.size(), index) << moment;
    for (std::size_t i = 0; i < rows.size(); ++i)
      EXPECT_EQ(rows[i].index, i) << moment;
    EXPECT_EQ(store->next_report(), rows.size());
    auto resume = store->begin_attempt().value();
    EXPECT_EQ(resume.first_report, rows.size());
    ASSERT_TRUE(resume.resume);
    EXPECT_EQ(resume.resume->index + 1, rows.size());
    if (rows.size() > index) {
      ++completed;
      ++index;
      auto& row = rows.back();
      EXPECT_EQ(row.values, (std::vector<metrics>{values, {{"rank", 1}}}));
      EXPECT_EQ(row.step_s, (std::vector<double>{0.5, 0.25}));
      EXPECT_EQ(row.wait_s, 0.125);
      EXPECT_EQ(row.checkpoint, resume.resume->data.name());
      EXPECT_EQ(store->last_metrics(), values);
    }
  }
  EXPECT_GE(completed, 6);
}

TEST_F(run_store_test, completes_the_journal_before_callbacks_are_called) {
  auto status = run_in_child([&] {
    auto store = open().value();
    ASSERT_TRUE(store->begin_attempt());
    (void) arm_failpoint("commit.state_saved");
    (void) test::store_batch(*store, 0, with_checkpoint(0, 0, {{"x", 1}}));
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  auto store = open().value();
  auto pending = pending_reports(*store);
  ASSERT_EQ(pending.size(), 1u);
  EXPECT_EQ(pending[0].batch.values[0], (metrics{{"x", 1}}));
  EXPECT_EQ(pending[0].data->name(), "c0");
}

TEST_F(run_store_test, completes_the_journal_with_the_end_that_it_refused) {
  auto journal = run / "journal.jsonl";
  {
    auto store = open().value();
    ASSERT_TRUE(store->begin_attempt());
    ASSERT_TRUE(arm_failpoint("journal.append:1+=enospc"));
    EXPECT_FALSE(store->finish(run_status_kind::errored,
                               make_run_error({ec::rank_failed, "why"})));
    ASSERT_TRUE(arm_failpoint(""));
  }
  EXPECT_FALSE(read_last_attempt(journal).value().end);
  for (int start : {1, 2}) {
    ASSERT_TRUE(open());
    auto end = read_last_attempt(journal).value().end;
    ASSERT_TRUE(end) << "start " << start;
    EXPECT_EQ(end->attempt, 0u);
    EXPECT_EQ(end->fields, (metrics{{"error", "why"}, {"status", "errored"}}));
  }
  auto lines = bytes_of(journal);
  auto first = lines.find("run_ended");
  EXPECT_EQ(lines.find("run_ended", first + 1), std::string::npos);
}

TEST_F(run_store_test, names_the_attempt_whose_driver_was_lost) {
  auto journal = run / "journal.jsonl";
  ASSERT_TRUE(open().value()->begin_attempt());
  for (int start : {1, 2}) {
    ASSERT_TRUE(open());
    auto end = read_last_attempt(journal).value().end;
    ASSERT_TRUE(end) << "start " << start;
    EXPECT_EQ(end->kind, "driver_lost");
    EXPECT_EQ(end->attempt, 0u);
  }
  auto lines = bytes_of(journal);
  auto first = lines.find("driver_lost");
  EXPECT_EQ(lines.find("driver_lost", first + 1), std::string::npos);
  EXPECT_EQ(open().value()->begin_attempt().value().attempt, 1u);
  EXPECT_FALSE(read_last_attempt(journal).value().end) << "the run continues";
}

TEST_F(run_store_test, names_an_attempt_whose_driver_was_lost_before_its_line) {
  {
    auto store = open().value();
    ASSERT_TRUE(store->begin_attempt());
    ASSERT_TRUE(store->finish(run_status_kind::errored,
                              make_run_error({ec::rank_failed, "why"})));
  }
  auto status = run_in_child([&] {
    (void) arm_failpoint("attempt.state_saved");
    (void) open().value()->begin_attempt();
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  for (int start : {1, 2}) {
    ASSERT_TRUE(open());
    auto end = read_last_attempt(run / "journal.jsonl").value().end;
    ASSERT_TRUE(end) << "start " << start;
    EXPECT_EQ(end->kind, "driver_lost");
    EXPECT_EQ(end->attempt, 1u);
  }
  auto lines = bytes_of(run / "journal.jsonl");
  auto first = lines.find("driver_lost");
  EXPECT_EQ(lines.find("driver_lost", first + 1), std::string::npos);
}

TEST_F(run_store_test, journals_what_it_found_on_opening) {
  {
    auto store = open().value();
    ASSERT_TRUE(store->begin_attempt());
    ASSERT_TRUE(test::store_batch(*store, 0, with_checkpoint(0, 0, {})));
    ASSERT_TRUE(test::store_batch(*store, 0, with_checkpoint(0, 1, {})));
  }
  write_bytes(run / "checkpoints" / "c1" / "a", "x");
  auto store = open().value();
  EXPECT_EQ(store->begin_attempt()->resume->data.name(), "c0");
  auto events = store->take_events(); // The driver was lost, too.
  EXPECT_EQ(std::ranges::count(events, "checkpoint_rotten", &store_event::kind),
            1);
  auto reader = journal_reader::open(run / "journal.jsonl").value();
  auto found = 0;
  while (auto entry = reader.next().value())
    if (auto event = std::get_if<journal_event>(&*entry))
      found += event->kind == "checkpoint_rotten";
  EXPECT_EQ(found, 1);
}

TEST_F(run_store_test, explains_a_rotten_checkpoint_whenever_its_driver_dies) {
  for (auto moment : {"rotten.forgotten", "rotten.renamed", "rotten.kept",
                      "attempt.state_saved"}) {
    fs::remove_all(run);
    {
      auto store = open().value();
      ASSERT_TRUE(store->begin_attempt());
      ASSERT_TRUE(test::store_batch(*store, 0, with_checkpoint(0, 0, {})));
      ASSERT_TRUE(test::store_batch(*store, 0, with_checkpoint(0, 1, {})));
    }
    write_bytes(run / "checkpoints" / "c1" / "a", "x");
    auto status = run_in_child([&] {
      (void) arm_failpoint(moment);
      (void) open().value()->begin_attempt();
    });
    ASSERT_TRUE(WIFSIGNALED(status)) << moment;
    EXPECT_EQ(open().value()->begin_attempt()->resume->data.name(), "c0");
    auto reader = journal_reader::open(run / "journal.jsonl").value();
    auto found = 0;
    while (auto entry = reader.next().value())
      if (auto event = std::get_if<journal_event>(&*entry))
        found += event->kind == "checkpoint_rotten";
    EXPECT_GE(found, 1) << moment;
  }
}
