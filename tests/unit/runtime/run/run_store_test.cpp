#include "troupe/runtime/store/run_store.hpp"

#include <gtest/gtest.h>

#include <future>
#include <limits>
#include <set>
#include <thread>

#include "tests/support/checkpoint_files.hpp"
#include "tests/support/child.hpp"
#include "tests/support/small_disk.hpp"
#include "tests/support/store_batch.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/untold_reports.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/storage/checksum.hpp"
#include "troupe/runtime/store/journal_reader.hpp"
#include "troupe/runtime/store/told_reports.hpp"
#include "troupe/runtime/values/run_error.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

bool mentions(const error& x, const std::string& text) {
  return x.message.find(text) != std::string::npos;
}

report_batch metrics_only(std::uint64_t index, std::vector<metrics> values) {
  report_batch result;
  result.index = index;
  result.values = packed(values);
  result.parts.resize(result.values.size());
  return result;
}

} // namespace

class run_store_test : public testing::Test {
protected:
  run_config config() const {
    run_config result;
    result.name = "r";
    result.storage_path = storage / "runs";
    return result;
  }

  expected<std::unique_ptr<run_store>> open() {
    return run_store::open(config(), "{\"lr\":0.1}");
  }

  report_batch with_checkpoint(std::uint64_t attempt, std::uint64_t index,
                               metrics values) {
    return stage_batch(run, attempt, index, "c" + std::to_string(index),
                       {{{"a", "1"}}, {{"b", "2"}}}, std::move(values))
      .value();
  }

  temporary_folder storage;
  fs::path run = storage / "runs" / "r";
};

TEST(sync_thread_test, a_call_that_throws_does_not_stop_the_next_one) {
  std::promise<void> second;
  int calls = 0;
  sync_thread thread;
  ASSERT_TRUE(thread.start([&] {
    if (++calls == 1)
      throw std::bad_alloc{};
    second.set_value();
    return false;
  }));
  second.get_future().wait();
}

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
  for (auto& x : {*done, result::from_path(run).value()}) {
    EXPECT_EQ(x.status, run_status_kind::finished);
    EXPECT_EQ(x.metrics, (metrics{{"x", 4}}));
    EXPECT_EQ(x.checkpoint, (*committed)->data);
    EXPECT_EQ(x.best_checkpoints, std::vector{**committed});
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
  EXPECT_EQ(bytes_of(run / "journal.jsonl"), before);
}

TEST_F(run_store_test, refuses_a_config_that_no_reader_would_take) {
  auto config_text = "\"" + std::string(64 * 1024 * 1024, 'x') + "\"";
  auto found = run_store::open(config(), config_text);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ec::storage);
  EXPECT_NE(found.error().message.find("run.json"), std::string::npos);
  EXPECT_TRUE(open()); // Nothing of it stays in the way.
}

TEST_F(run_store_test, leaves_a_run_alone_whose_state_cannot_be_read) {
  ASSERT_TRUE(open().value()->finish(run_status_kind::finished));
  auto journal = bytes_of(run / "journal.jsonl");
  auto state = bytes_of(run / "state.json");
  ASSERT_TRUE(arm_failpoint("storage.look_up=eio"));
  auto again = open();
  ASSERT_TRUE(arm_failpoint(""));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ec::storage);
  EXPECT_TRUE(mentions(again.error(), "state.json: Input/output error"));
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
  EXPECT_EQ(store->current_result().metrics_history()->size(), 8u);
}

TEST_F(run_store_test, gives_the_error_of_a_failed_run_back) {
  auto store = open().value();
  auto why = make_run_error(
    {{0, {rank_failure::kind_type::signal, 9, "", 1, "h"}}}, run);
  auto done = store->finish(run_status_kind::errored, why).value();
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
    EXPECT_EQ(*start.resume, before.checkpoints.back());
    EXPECT_EQ(store->checkpoints(), before.checkpoints);
  }
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
    auto rows = store->current_result().metrics_history().value();
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
  auto untold = untold_reports(*store);
  ASSERT_EQ(untold.size(), 1u);
  EXPECT_EQ(untold[0].batch.values[0], (metrics{{"x", 1}}));
  EXPECT_EQ(untold[0].data->name(), "c0");
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
  EXPECT_FALSE(read_last_attempt(journal).value().end) << "the run goes on";
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
  EXPECT_EQ(store->take_events().at(0).kind, "checkpoint_rotten");
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
  EXPECT_EQ(store->current_result().metrics_history()->size(), 2000u);
}

TEST_F(run_store_test, skips_damaged_lines_of_its_history_and_says_so) {
  auto store = open().value();
  ASSERT_TRUE(store->begin_attempt());
  for (std::uint64_t i = 0; i < 4; ++i)
    ASSERT_TRUE(store->append(0, metrics_only(i, {{{"x", i}}})));
  auto journal = run / "journal.jsonl";
  EXPECT_TRUE(store->current_result().metrics_history()->damaged.empty());
  auto bytes = bytes_of(journal);
  bytes[bytes.find("\"batch\":1") + 2] ^= 1;
  write_bytes(journal, bytes);
  auto history = store->current_result().metrics_history();
  ASSERT_TRUE(history) << history.error().message;
  ASSERT_EQ(history->size(), 3u);
  EXPECT_EQ((*history)[1].index, 2u);
  ASSERT_EQ(history->damaged.size(), 1u);
  EXPECT_NE(history->damaged[0].find("journal.jsonl line 4 "),
            std::string::npos)
    << history->damaged[0];
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

TEST_F(run_store_test, says_why_a_storage_cannot_be_used) {
  auto bad = config();
  write_bytes(storage / "file", "x");
  bad.storage_path = storage / "file";
  auto store = run_store::open(bad);
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, ec::storage);
  EXPECT_TRUE(mentions(store.error(), "Not a directory"));
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
  EXPECT_TRUE(mentions(full.error(), "No space left on device"));
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

TEST(result_test, is_of_no_run_where_none_began) {
  temporary_folder folder;
  fs::current_path(folder.path());
  write_bytes(folder / "journal.jsonl", "of another run");
  for (auto& x : {result{}.metrics_history().map([](auto&&) {}),
                  result::from_path("").map([](auto&&) {})}) {
    ASSERT_FALSE(x);
    EXPECT_EQ(x.error().code, ec::invalid_argument);
  }
  fs::current_path("/");
}

TEST(result_test, finds_the_best_checkpoint_by_any_metric) {
  auto nan = std::numeric_limits<double>::quiet_NaN();
  auto named = [](const char* name, std::uint64_t index, metrics values) {
    return reported_checkpoint{
      checkpoint::from_directory(fs::path{"/c"} / name), std::move(values),
      index, 0};
  };
  result x;
  x.best_checkpoints = {named("a", 2, {{"loss", 1.0}, {"acc", 5}}),
                        named("b", 1, {{"loss", 1.0}}),
                        named("c", 3, {{"loss", nan}, {"note", "text"}})};
  auto best = [&](const char* metric, score_order order) {
    return x.best_checkpoint(metric, order)->data.name();
  };
  EXPECT_EQ(best("loss", score_order::max), "a"); // ties go to the newer
  EXPECT_EQ(best("loss", score_order::min), "a");
  EXPECT_EQ(best("acc", score_order::min), "a");
  auto unknown = x.best_checkpoint("note", score_order::max);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ec::invalid_argument);
  EXPECT_NE(unknown.error().message.find("acc, loss"), std::string::npos);
}

TEST(result_test, a_value_taken_from_a_temporary_result_outlives_it) {
  static_assert(
    std::is_same_v<decltype(std::declval<result>().value_or_throw()), result>);
  auto&& taken =
    [] {
      result x;
      x.metrics = {{"loss", 0.5}};
      return x;
    }()
      .value_or_throw();
  EXPECT_EQ(taken.metrics.at("loss"), metric_value{0.5});
}
