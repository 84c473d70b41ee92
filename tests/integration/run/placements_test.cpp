// The same loops as processes, as threads of this process, and inline.

#include <atomic>
#include <sstream>

#include <gmock/gmock.h>

#include "tests/integration/run/placement_test.hpp"
#include "tests/integration/run/report_hook.hpp"
#include "troupe/callbacks/tracking/tracker.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal::test {

namespace {

/// A tracker that keeps the word that it is to stop.
class cancelled_sink : public sink {
public:
  std::string name() const override { return "cancelled"; }
  std::string options() const override { return "{}"; }
  sink_result start(const tracked_run& run, const std::string&) override {
    cancelled = run.cancelled;
    started = true;
    return {};
  }
  sink_result log(std::span<const tracker_record>) override { return {}; }
  sink_result finish(run_status_kind,
                     std::chrono::system_clock::time_point) override {
    return {};
  }
  std::string state() const override { return {}; }

  std::stop_token cancelled;
  std::atomic<bool> started = false;
};

/// Takes a report that fails for nothing and makes a few more.
void stubborn_loop(train_context& context, const fault_plan& plan) {
  auto left = -1;
  for (int step = 0; left != 0; ++step) {
    if (left > 0)
      --left;
    try {
      if (plan.action != "same_name") {
        context.report({{"step", step}});
        continue;
      }
      auto files = context.new_checkpoint();
      auto rank = std::to_string(context.rank());
      write_bytes(files.path() / rank, "weights");
      auto name = step < 2 ? "same" : "checkpoint_" + std::to_string(step);
      context.report({{"step", step}}, std::move(files),
                     report_options{.checkpoint_name = name, .barrier = false});
    } catch (const std::exception&) {
      if (left < 0)
        left = 3;
    }
  }
}

/// Logs without end, and reports nothing.
void logging_loop(train_context& context) {
  if (context.rank() != 0)
    return;
  tracking_handle tracker{context, {}};
  for (std::int64_t step = 0;; ++step)
    tracker.log({{"loss", 1.0 / static_cast<double>(step + 1)}}, step);
}

/// Fails in its first attempt as a failed call of its own does.
void loop_without_a_file(train_context& context) {
  if (context.attempt() == 0)
    throw train_error{{ec::storage, "there is no file weights.safetensors"}};
  context.report({{"attempt", 1}});
}

void throw_in_30_attempts(train_context& context) {
  context.report({{"attempt", context.attempt()}});
  if (context.attempt() < 30)
    throw std::runtime_error{"not yet"};
}

/// Looks at something in `after_run`.
class last_callback : public user_callback {
public:
  explicit last_callback(std::function<bool()> look) : look_(std::move(look)) {}

  void after_run(const run_context&, const result&) override { seen = look_(); }

  std::optional<bool> seen;

private:
  std::function<bool()> look_;
};

} // namespace

TEST_P(placement_test, an_exception_restarts_from_the_last_checkpoint) {
  auto callback = std::make_shared<recording_callback>();
  auto given = options();
  given.run.callbacks = {callback};
  given.run.failure.max_failures = 1;
  auto outcome = run({.action = "throw", .rank = 0, .step = 1}, given);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_THAT(callback->attempts, ::testing::ElementsAre(0u, 1u, 1u));
  EXPECT_EQ(outcome.metrics.at("step"), metric_value{2});
  EXPECT_EQ(callback->calls.at(2), "after_exception of rank 0");
}

TEST_P(placement_test, a_journal_that_is_not_durable_ends_the_run) {
  auto given = options();
  given.run.callbacks = {
    on_report(1, [] { (void) arm_failpoint("journal.sync=eio"); })};
  auto outcome = run({.steps = 1'000'000'000, .checkpoint_by = -1}, given);
  (void) arm_failpoint("");
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.status, run_status_kind::errored);
  EXPECT_EQ(outcome.error->code, ec::storage);
  EXPECT_NE(outcome.error->message.find("journal.jsonl"), std::string::npos)
    << outcome.error->message;
}

// A6: lines that loops log are made durable without a report, too.
TEST_P(placement_test, a_run_that_only_logs_notices_the_loss_of_its_journal) {
  auto given = options();
  given.run.metrics_csv = given.run.report_page = false; // of many lines
  ASSERT_TRUE(arm_failpoint("journal.sync:2=eio"));
  auto outcome = data_parallel_trainer{logging_loop, given}.fit();
  (void) arm_failpoint("");
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.status, run_status_kind::errored);
  EXPECT_EQ(outcome.error->code, ec::storage) << outcome.error->message;
  EXPECT_NE(outcome.error->message.find("journal.jsonl"), std::string::npos)
    << outcome.error->message;
}

TEST_P(placement_test, a_line_that_is_refused_once_ends_even_a_stubborn_loop) {
  auto given = options();
  given.run.callbacks = {
    on_report(1, [] { (void) arm_failpoint("journal.append=enospc"); })};
  auto outcome =
    data_parallel_trainer{stubborn_loop, fault_plan{}, given}.fit();
  (void) arm_failpoint("");
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.status, run_status_kind::errored);
  EXPECT_EQ(outcome.error->code, ec::storage) << outcome.error->message;
  expect_no_gap(outcome);
}

/// Reports a checkpoint under each of *names*; the metrics count those that
/// were refused so far.
void report_under(train_context& context,
                  std::initializer_list<const char*> names) {
  auto refused = 0;
  for (auto name : names) {
    auto files = context.new_checkpoint();
    write_bytes(files.path() / std::to_string(context.rank()), "weights");
    try {
      context.report({{"refused", refused}}, std::move(files),
                     report_options{.checkpoint_name = name});
    } catch (const std::exception&) {
      ++refused;
    }
  }
}

void name_freely(train_context& context) {
  report_under(context, {"epoch/1", "one", "one", ".two", "two"});
}

TEST_P(placement_test, a_loop_may_choose_another_name_for_a_checkpoint) {
  auto outcome = data_parallel_trainer{name_freely, options()}.fit();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  auto rows = outcome.metrics_history().value();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].values[0].at("refused"), metric_value{1});
  EXPECT_EQ(rows[1].values[0].at("refused"), metric_value{3});
  EXPECT_EQ(outcome.checkpoint->name(), "two");
}

/// The folder `best` is not a checkpoint, and the last name is still free.
void name_over_others(train_context& context) {
  if (context.rank() == 0)
    fs::create_directory(context.run_path() / "checkpoints" / "best");
  context.barrier();
  report_under(context, {"best", "checkpoint_000001", "", "third"});
}

TEST_P(placement_test, a_name_that_is_taken_is_refused_in_the_loop) {
  auto outcome = data_parallel_trainer{name_over_others, options()}.fit();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  auto rows = outcome.metrics_history().value();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].values[0].at("refused"), metric_value{1});
  EXPECT_EQ(rows[1].values[0].at("refused"), metric_value{2});
  EXPECT_EQ(outcome.checkpoint->name(), "third");
  EXPECT_TRUE(fs::is_empty(run_path() / "checkpoints" / "best"));
}

TEST_P(placement_test, a_refused_checkpoint_ends_even_a_stubborn_loop) {
  auto outcome =
    data_parallel_trainer{stubborn_loop, fault_plan{.action = "same_name"},
                          options()}
      .fit();
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.status, run_status_kind::errored);
  EXPECT_EQ(outcome.error->code, ec::conflict) << outcome.error->message;
  expect_no_gap(outcome);
}

TEST_P(placement_test, whatever_a_loop_throws_is_a_failure_of_its_rank) {
  auto callback = std::make_shared<recording_callback>();
  auto given = options();
  given.run.callbacks = {callback};
  given.run.failure.max_failures = 1;
  auto outcome = data_parallel_trainer{loop_without_a_file, given}.fit();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.attempts, 2u);
  EXPECT_THAT(callback->calls,
              testing::Contains(testing::StartsWith("after_exception")));
}

TEST_P(placement_test, a_driver_that_was_ousted_says_so_and_writes_no_more) {
  std::unique_ptr<run_store> second;
  std::string state;
  auto given = options();
  given.run.callbacks = {on_report(3, [&] {
    second = oust();
    state = bytes_of(run_path() / "state.json");
  })};
  auto outcome = run({.steps = 1'000'000'000, .checkpoint_by = -1}, given);
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.status, run_status_kind::errored);
  EXPECT_EQ(outcome.error->code, ec::conflict);
  // Between two claims there is no one to be named.
  EXPECT_NE(outcome.error->message.find("was taken by "), std::string::npos)
    << outcome.error->message;
  ASSERT_TRUE(second);
  EXPECT_EQ(bytes_of(run_path() / "state.json"), state);
  EXPECT_TRUE(second->append_event("still_mine", 1));
}

TEST_P(placement_test, trackers_of_an_ousted_driver_have_stopped_at_its_end) {
  auto sink = std::make_shared<cancelled_sink>();
  auto last = std::make_shared<last_callback>(
    [&] { return sink->cancelled.stop_requested(); });
  std::unique_ptr<run_store> second;
  auto given = options();
  given.run.callbacks = {on_report(3,
                                   [&] {
                                     while (!sink->started)
                                       std::this_thread::yield();
                                     second = oust();
                                   }),
                         last};
  given.run.trackers = {std::make_shared<tracker>(sink)};
  auto outcome = run({.steps = 1'000'000'000, .checkpoint_by = -1}, given);
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ec::conflict);
  EXPECT_THAT(last->seen, testing::Optional(true));
}

TEST_P(placement_test, an_exception_ends_the_run) {
  auto outcome = run({.action = "throw", .rank = 0, .step = 1}, options());
  EXPECT_EQ(only_failure(outcome, 0).what, "the loss is a banana");
  EXPECT_EQ(outcome.status, run_status_kind::errored);
}

void throw_100_kilobytes(train_context& context) {
  if (context.rank() == 0)
    throw std::runtime_error{std::string(100'000, 'x')};
  context.barrier();
}

TEST_P(placement_test, a_long_exception_points_to_where_there_is_more_of_it) {
  auto outcome = data_parallel_trainer{throw_100_kilobytes, options()}.fit();
  auto& what = only_failure(outcome, 0).what;
  EXPECT_TRUE(what.ends_with("x… (cut; it has 100000 bytes)"));
  EXPECT_GT(what.size(), max_reason_size);
  EXPECT_LT(what.size(), max_reason_size + 100);
  auto& message = outcome.error->message;
  auto log = run_path() / "logs" / "rank_0.log";
  auto is_named = message.find(log.string()) != std::string::npos;
  EXPECT_EQ(is_named, fs::exists(log)) << message;
  EXPECT_NE(message.find(is_named ? "(cut; see " : "`ranks` of the error"),
            std::string::npos)
    << message;
  auto journal = bytes_of(run_path() / "journal.jsonl");
  EXPECT_EQ(journal.find(log.string()) != std::string::npos, is_named);
}

TEST_P(placement_test, the_journal_says_which_rank_failed_and_why) {
  run({.action = "throw", .rank = 0, .step = 1}, options());
  auto journal = bytes_of(run_path() / "journal.jsonl");
  auto event = journal.find(R"("event":"ranks_failed")");
  ASSERT_NE(event, std::string::npos) << journal;
  auto line = journal.substr(event, journal.find('\n', event) - event);
  EXPECT_NE(line.find("Rank 0: exception: the loss is a banana"),
            std::string::npos)
    << line;
}

/// Counts the segments that this process has mapped when a run ends.
class segment_counter : public user_callback {
public:
  void after_run(const run_context&, const result&) override {
    std::istringstream maps{bytes_of("/proc/self/maps")};
    for (std::string line; std::getline(maps, line);)
      mapped += line.find("troupe-segment") != std::string::npos;
  }

  int mapped = 0;
};

TEST_P(placement_test, restarts_keep_no_memory_of_earlier_attempts_mapped) {
  auto counter = std::make_shared<segment_counter>();
  auto given = options();
  given.run.callbacks = {counter};
  given.run.failure.max_failures = -1;
  auto outcome =
    data_parallel_trainer{throw_in_30_attempts, std::move(given)}.fit();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.attempts, 31u);
  // The worker group may still hold the last one.
  EXPECT_LE(counter->mapped, 1);
}

INSTANTIATE_TEST_SUITE_P(placements, placement_test,
                         ::testing::Values(scaling_config{.num_workers = 2},
                                           scaling_config{
                                             .num_workers = 3,
                                             .where = placement::in_process},
                                           scaling_config{.num_workers = 0}),
                         name_of_placement);

} // namespace troupe::internal::test
