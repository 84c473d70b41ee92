// The same loops as threads of this process, inline, and inside of a service.

#include <atomic>
#include <csignal>
#include <new>
#include <sstream>
#include <thread>

#include <caf/actor_system.hpp>
#include <caf/scoped_actor.hpp>
#include <gmock/gmock.h>
#include <troupe/actors.hpp>

#include "tests/integration/run/report_hook.hpp"
#include "tests/integration/run/run_test.hpp"
#include "tests/support/store_batch.hpp"
#include "troupe/actors/thread_launcher.hpp"
#include "troupe/callbacks/csv/csv.hpp"
#include "troupe/callbacks/tracking/tracker.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/store/told_reports.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::test {

namespace {

/// Writes down every call.
class recording_callback : public user_callback {
public:
  void before_run(const run_context& run) override {
    calls.push_back("before_run " + run.name);
  }
  void after_report(const run_context& run, const std::vector<metrics>& values,
                    const std::optional<checkpoint>& data) override {
    calls.push_back("after_report " + std::to_string(values.size())
                    + (data ? " " + data->name() : ""));
    if (data && !fs::exists(data->path()))
      calls.push_back("no such folder");
    attempts.push_back(run.attempt);
  }
  void after_exception(const run_context&,
                       const std::map<int, rank_failure>& ranks) override {
    calls.push_back("after_exception of rank "
                    + std::to_string(ranks.begin()->first));
  }
  void after_run(const run_context&, const result& outcome) override {
    calls.push_back("after_run " + std::string{to_string(outcome.status)});
  }

  std::vector<std::string> calls;
  std::vector<std::uint64_t> attempts;
};

class throwing_callback : public user_callback {
public:
  explicit throwing_callback(std::string hook = "after_report")
    : hook_(std::move(hook)) {}

private:
  void before_run(const run_context&) override { trip("before_run"); }
  void after_report(const run_context&, const std::vector<metrics>&,
                    const std::optional<checkpoint>&) override {
    trip("after_report");
  }
  void after_exception(const run_context&,
                       const std::map<int, rank_failure>&) override {
    trip("after_exception");
  }
  void after_run(const run_context&, const result&) override {
    trip("after_run");
  }
  void trip(const std::string& hook) const {
    if (hook == hook_)
      throw std::runtime_error{"the callback tripped"};
  }

  std::string hook_;
};

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

/// Every placement must look the same to the user.
class placement_test : public run_test,
                       public ::testing::WithParamInterface<scaling_config> {
protected:
  train_options options() { return {.scaling = GetParam(), .run = config()}; }
  std::size_t ranks() const {
    return static_cast<std::size_t>(std::max(GetParam().num_workers, 1));
  }

  /// Expects the history of *x* to have every report up to its last.
  static void expect_no_gap(const result& x) {
    auto rows = x.metrics_history();
    ASSERT_TRUE(rows) << rows.error().message;
    ASSERT_FALSE(rows->empty());
    for (std::size_t i = 0; i < rows->size(); ++i)
      EXPECT_EQ((*rows)[i].values[0].at("step"), metric_value{i});
  }

  /// The run's next driver, while this one is still there: as on storage whose
  /// locks another host does not see.
  std::unique_ptr<run_store> oust() {
    fs::remove(run_path() / "lock");
    for (auto& x : fs::directory_iterator{run_path() / "attempts"}) {
      auto claim = bytes_of(x.path());
      fs::remove(x.path());
      write_bytes(x.path(), claim);
    }
    return run_store::open(resolve(config())).value();
  }
};

TEST_P(placement_test, callbacks_see_every_report_in_order) {
  auto callback = std::make_shared<recording_callback>();
  auto given = options();
  given.run.callbacks = {callback};
  auto outcome = run({.steps = 2}, given);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  auto n = std::to_string(ranks());
  EXPECT_THAT(callback->calls,
              ::testing::ElementsAre("before_run run",
                                     "after_report " + n + " checkpoint_000000",
                                     "after_report " + n + " checkpoint_000001",
                                     "after_run finished"));
}

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

TEST_P(placement_test, callbacks_hear_nothing_of_a_start_that_cannot_begin) {
  ASSERT_TRUE(run({.action = "throw", .rank = 0, .step = 1}, options()).error);
  auto callback = std::make_shared<recording_callback>();
  auto given = options();
  given.run.callbacks = {callback};
  ASSERT_TRUE(arm_failpoint("journal.append=eio"));
  auto outcome = run({}, given);
  (void) arm_failpoint("");
  EXPECT_EQ(outcome.status, run_status_kind::errored);
  EXPECT_THAT(callback->calls, ::testing::IsEmpty());
  outcome = run({}, given);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(callback->calls.front(), "before_run run");
  EXPECT_EQ(callback->calls.back(), "after_run finished");
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

/// Counts the names that it is refused, in what it reports.
void name_freely(train_context& context) {
  auto refused = 0;
  for (auto name : {"epoch/1", "one", "one", ".two", "two"}) {
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

TEST_P(placement_test, a_loop_may_choose_another_name_for_a_checkpoint) {
  auto outcome = data_parallel_trainer{name_freely, options()}.fit();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  auto rows = outcome.metrics_history().value();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].values[0].at("refused"), metric_value{1});
  EXPECT_EQ(rows[1].values[0].at("refused"), metric_value{3});
  EXPECT_EQ(outcome.checkpoint->name(), "two");
}

/// Counts the names that it is refused although no checkpoint has them.
void name_over_others(train_context& context) {
  auto refused = 0;
  if (context.rank() == 0)
    fs::create_directory(context.run_path() / "checkpoints" / "best");
  context.barrier();
  for (auto name : {"best", "checkpoint_000001", "", "third"}) {
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

TEST_P(placement_test, a_name_at_which_something_lies_is_refused_in_the_loop) {
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

TEST_P(placement_test, a_throwing_callback_is_logged_and_training_goes_on) {
  auto given = options();
  given.run.callbacks = {std::make_shared<throwing_callback>()};
  auto outcome = run({}, given);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_NE(bytes_of(run_path() / "journal.jsonl").find("the callback tripped"),
            std::string::npos);
}

TEST_P(placement_test, a_throwing_callback_ends_the_run_if_told_so) {
  auto given = options();
  given.run.callbacks = {std::make_shared<throwing_callback>()};
  given.run.callback_errors = callback_errors::abort;
  auto outcome = run({.steps = 1'000'000, .checkpoint_by = -1}, given);
  ASSERT_TRUE(outcome.error) << to_string(outcome.status) << '\n'
                             << bytes_of(run_path() / "journal.jsonl");
  EXPECT_EQ(outcome.error->code, ec::callback_failed);
}

TEST_P(placement_test, N4_all_callbacks_hear_of_the_report_that_ends_the_run) {
  auto recorded = std::make_shared<recording_callback>();
  auto given = options();
  given.run.callbacks = {std::make_shared<throwing_callback>(), recorded};
  given.run.callback_errors = callback_errors::abort;
  auto outcome = run({.steps = 1'000'000, .checkpoint_by = -1}, given);
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ec::callback_failed);
  auto reports = std::ranges::count_if(
    recorded->calls, [](auto& x) { return x.starts_with("after_report"); });
  EXPECT_EQ(static_cast<std::size_t>(reports),
            outcome.metrics_history().value().size());
  EXPECT_THAT(outcome.unsent, ::testing::IsEmpty());
}

TEST_P(placement_test, a_callback_that_throws_at_the_begin_lets_no_loop_run) {
  auto recorded = std::make_shared<recording_callback>();
  auto given = options();
  given.run.callbacks = {std::make_shared<throwing_callback>("before_run"),
                         recorded};
  given.run.callback_errors = callback_errors::abort;
  given.run.failure.max_failures = -1;
  auto outcome = run({}, given);
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ec::callback_failed);
  EXPECT_EQ(outcome.status, run_status_kind::errored);
  EXPECT_EQ(outcome.attempts, 1u);
  EXPECT_THAT(recorded->calls,
              ::testing::ElementsAre("before_run run", "after_run errored"));
  EXPECT_TRUE(outcome.metrics.empty());
}

TEST_P(placement_test, a_callback_that_throws_at_a_failure_allows_no_restart) {
  auto given = options();
  given.run.callbacks = {
    std::make_shared<throwing_callback>("after_exception")};
  given.run.callback_errors = callback_errors::abort;
  given.run.failure.max_failures = -1;
  auto outcome = run({.action = "throw",
                      .rank = 0,
                      .step = 1,
                      .attempt = -1,
                      .steps = 1'000'000,
                      .checkpoint_by = -1},
                     given);
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ec::callback_failed);
}

TEST_P(placement_test, a_callback_that_throws_at_the_last_failure_hides_none) {
  auto given = options();
  given.run.callbacks = {
    std::make_shared<throwing_callback>("after_exception")};
  given.run.callback_errors = callback_errors::abort;
  auto outcome = run({.action = "throw", .rank = 0, .step = 1}, given);
  EXPECT_EQ(only_failure(outcome, 0).what, "the loss is a banana");
}

TEST_P(placement_test, a_callback_that_throws_at_the_end_changes_no_result) {
  auto given = options();
  given.run.callbacks = {std::make_shared<throwing_callback>("after_run")};
  given.run.callback_errors = callback_errors::abort;
  auto outcome = run({.steps = 1}, given);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_NE(bytes_of(run_path() / "journal.jsonl").find("the callback tripped"),
            std::string::npos);
}

TEST_P(placement_test, a_resumed_run_tells_the_number_of_its_next_attempt) {
  auto given = options();
  auto first = run({.action = "throw", .rank = 0, .step = 1}, given);
  ASSERT_TRUE(first.error);
  struct numbers : user_callback {
    void before_run(const run_context& run) override { attempt = run.attempt; }
    std::uint64_t attempt = 0;
  };
  auto callback = std::make_shared<numbers>();
  given.run.callbacks = {callback};
  auto second = run({}, given);
  ASSERT_FALSE(second.error) << second.error->message;
  EXPECT_EQ(callback->attempt, 1u);
}

TEST_P(placement_test, a_resumed_run_first_tells_what_its_last_life_did_not) {
  {
    auto dead = run_store::open(resolve(config())).value();
    auto attempt = dead->begin_attempt().value().attempt;
    ASSERT_TRUE(told_reports::open(*dead));
    report_batch batch;
    batch.values = {{{"step", 7}}};
    batch.parts.resize(1);
    ASSERT_TRUE(store_batch(*dead, attempt, batch));
  }
  auto callback = std::make_shared<recording_callback>();
  auto given = options();
  given.run.callbacks = {callback};
  auto outcome = run({.steps = 1}, given);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  auto n = std::to_string(ranks());
  EXPECT_THAT(callback->calls,
              ::testing::ElementsAre("before_run run", "after_report 1",
                                     "after_report " + n + " checkpoint_000001",
                                     "after_run finished"));
  EXPECT_THAT(callback->attempts, ::testing::ElementsAre(0u, 1u));
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
                         [](auto& info) {
                           auto& x = info.param;
                           return x.num_workers == 0 ? "inline"
                                  : x.where == placement::in_process
                                    ? "threads"
                                    : "processes";
                         });

TEST_F(run_test, the_loop_of_an_inline_run_is_on_the_thread_that_calls_fit) {
  std::vector<std::thread::id> threads;
  auto loop = [&](train_context& context) {
    threads.push_back(std::this_thread::get_id());
    context.report({{"attempt", context.attempt()}});
    if (context.attempt() < 2)
      throw std::runtime_error{"once more"};
  };
  train_options options{.scaling = {.num_workers = 0}, .run = config()};
  options.run.failure.max_failures = 2;
  auto outcome = data_parallel_trainer{in_process_loop{loop}, options}.fit();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(threads, std::vector(3, std::this_thread::get_id()));
}

/// A config whose copy fails at the *left*-th from now on.
struct copied_with_effort {
  copied_with_effort() = default;
  copied_with_effort(const copied_with_effort&) {
    if (left > 0 && --left == 0)
      throw std::bad_alloc{};
  }

  static inline std::atomic<int> left{0};
};

TEST_F(run_test, a_closure_that_cannot_be_copied_ends_the_run_not_the_program) {
  auto loop = [x = copied_with_effort{}](train_context& context) {
    context.report({{"x", 1}});
  };
  auto failures = 0;
  for (int workers : {0, 1})
    for (int nth = 1; nth <= 12; ++nth) {
      train_options options{
        .scaling = {.num_workers = workers, .where = placement::in_process},
        .run = config(std::to_string(workers) + "-" + std::to_string(nth))};
      data_parallel_trainer trainer{in_process_loop{loop}, options};
      copied_with_effort::left = nth;
      auto outcome = trainer.fit();
      auto failed = copied_with_effort::left.exchange(0) == 0;
      failures += failed;
      // A rank that could not be started is started again.
      EXPECT_EQ(outcome.error || outcome.attempts > 1, failed)
        << workers << ' ' << nth;
    }
  EXPECT_GT(failures, 4);
}

/// Which signals are blocked where callbacks are called.
struct mask_watch : user_callback {
  void after_report(const run_context&, const std::vector<metrics>&,
                    const std::optional<checkpoint>&) override {
    pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  }

  sigset_t blocked{};
};

TEST_P(placement_test, callbacks_have_the_signal_mask_of_who_called_fit) {
  auto seen = std::make_shared<mask_watch>();
  auto given = options();
  given.run.callbacks = {seen};
  auto outcome = run({.steps = 1}, given);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  for (int signal : {SIGTERM, SIGINT, SIGHUP, SIGSEGV})
    EXPECT_EQ(sigismember(&seen->blocked, signal), 0) << signal;
}

TEST_F(run_test, an_inline_run_shows_its_progress_and_how_it_ended) {
  train_options options{.scaling = {.num_workers = 0}, .run = config()};
  options.run.quiet = false;
  testing::internal::CaptureStderr();
  auto outcome = run({.steps = 2}, options);
  auto shown = testing::internal::GetCapturedStderr();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_THAT(shown, testing::HasSubstr("step=1"));
  EXPECT_THAT(shown, testing::HasSubstr("finished"));
}

TEST_F(run_test, an_inline_loop_is_waited_for_however_long_it_stays) {
  train_options options{.scaling = {.num_workers = 0}, .run = config()};
  options.run.stop_timeout = std::chrono::milliseconds{1};
  auto journal = run_path() / "journal.jsonl";
  auto stay = [&](train_context& context) {
    raise(SIGINT);
    while (bytes_of(journal).find("the run waits for it") == std::string::npos)
      std::this_thread::yield();
    context.report({{"x", 1}});
  };
  auto outcome = data_parallel_trainer{in_process_loop{stay}, options}.fit();
  EXPECT_EQ(outcome.status, run_status_kind::aborted);
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ec::stopped);
  EXPECT_TRUE(outcome.error->ranks.empty());
}

TEST_F(run_test, a_lent_thread_comes_back_if_the_driver_dies) {
  register_messages();
  system_config system_settings;
  caf::actor_system system{system_settings};
  auto thread = std::make_shared<lent_thread>();
  auto handle =
    run_handle::start({{.num_workers = 0},
                       config(),
                       train_loop::make(counting_loop, no_backend{},
                                        fault_plan{.steps = 1'000'000'000})},
                      system, {.thread = thread});
  ASSERT_TRUE(handle) << handle.error().message;
  result outcome;
  std::thread other{[&] {
    while (handle->status().reports < 3)
      std::this_thread::yield();
    caf::anon_send_exit(handle->driver(), caf::exit_reason::kill);
    outcome = handle->wait();
    thread->take_back();
  }};
  thread->serve();
  other.join();
  EXPECT_EQ(outcome.status, run_status_kind::errored);
  EXPECT_EQ(handle->threads_left_behind(), 0);
}

TEST_F(run_test, a_run_without_workers_has_a_thread_of_its_own_in_a_service) {
  register_messages();
  system_config system_settings;
  caf::actor_system system{system_settings};
  std::thread::id thread;
  auto loop = [&](train_context& context) {
    thread = std::this_thread::get_id();
    context.report({{"world_size", context.world_size()}});
  };
  auto handle =
    data_parallel_trainer{
      in_process_loop{loop},
      train_options{.scaling = {.num_workers = 0}, .run = config()}}
      .start(system);
  ASSERT_TRUE(handle) << handle.error().message;
  auto outcome = handle->wait();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.metrics, (metrics{{"world_size", 1}}));
  EXPECT_NE(thread, std::this_thread::get_id());
}

TEST_F(run_test, a_closure_runs_in_threads) {
  std::atomic<int> sum{0};
  auto loop = [&sum](train_context& context) {
    sum += context.rank() + 1;
    context.barrier();
    context.report({{"sum", sum.load()}});
  };
  train_options options{
    .scaling = {.num_workers = 3, .where = placement::in_process},
    .run = config()};
  auto outcome = data_parallel_trainer{in_process_loop{loop}, options}.fit();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(sum, 6);
}

TEST_F(run_test, a_closure_is_refused_in_processes) {
  int x = 0;
  auto loop = [&x](train_context&) { ++x; };
  auto outcome =
    data_parallel_trainer{
      in_process_loop{loop},
      train_options{.scaling = {.num_workers = 2}, .run = config()}}
      .fit();
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ec::invalid_config);
  EXPECT_EQ(x, 0);
}

TEST_F(run_test, a_thread_that_stays_in_its_loop_is_left_behind) {
  // Released at the end, so that the test leaves no thread either.
  static std::atomic<bool> release;
  static std::atomic<bool> inside;
  static std::atomic<bool> left;
  release = inside = left = false;
  auto loop = [](train_context& context) {
    if (context.rank() == 0) {
      while (!inside)
        std::this_thread::yield();
      throw std::runtime_error{"off"};
    }
    inside = true;
    while (!release)
      std::this_thread::yield();
    left = true;
  };
  train_options options{
    .scaling = {.num_workers = 2, .where = placement::in_process},
    .run = config()};
  options.run.stop_timeout = std::chrono::milliseconds{100};
  auto outcome = data_parallel_trainer{in_process_loop{loop}, options}.fit();
  ASSERT_TRUE(outcome.error);
  EXPECT_NE(outcome.error->message.find("left behind"), std::string::npos)
    << outcome.error->message;
  release = true;
  while (!left)
    std::this_thread::yield();
}

TEST_F(run_test, a_service_starts_asks_and_stops_a_run_in_its_own_system) {
  register_messages();
  system_config system_settings;
  caf::actor_system system{system_settings};
  fault_plan plan{.steps = 1'000'000'000, .checkpoint_by = -1};
  auto handle =
    data_parallel_trainer{
      counting_loop, plan,
      train_options{.scaling = {.num_workers = 2}, .run = config()}}
      .start(system);
  ASSERT_TRUE(handle) << handle.error().message;
  caf::scoped_actor self{system};
  run_status status;
  while (status.reports < 10)
    self->request(handle->driver(), std::chrono::seconds{10}, get_status{})
      .receive([&](run_status& x) { status = std::move(x); },
               [&](caf::error& reason) { FAIL() << caf::to_string(reason); });
  EXPECT_EQ(status.world_size, 2);
  EXPECT_EQ(status.state, run_state::running);
  handle->stop();
  auto outcome = handle->wait();
  EXPECT_EQ(outcome.status, run_status_kind::aborted);
  EXPECT_EQ(handle->status().state, run_state::aborted);
}

TEST_F(run_test, several_threads_may_wait_for_one_handle) {
  register_messages();
  system_config system_settings;
  caf::actor_system system{system_settings};
  auto settings = config();
  settings.trackers = {csv_tracker()};
  auto handle =
    data_parallel_trainer{
      counting_loop, fault_plan{.steps = 3},
      train_options{.scaling = {.num_workers = 2}, .run = settings}}
      .start(system);
  ASSERT_TRUE(handle) << handle.error().message;
  std::vector<result> outcomes(4);
  {
    std::vector<std::jthread> threads;
    for (auto& x : outcomes)
      threads.emplace_back([&] { x = handle->wait(); });
  }
  for (auto& x : outcomes) {
    EXPECT_EQ(x.status, run_status_kind::finished);
    EXPECT_THAT(x.unsent, testing::IsEmpty());
  }
  EXPECT_EQ(handle->wait().status, run_status_kind::finished);
}

TEST_F(run_test, a_handle_ends_its_run_before_it_takes_another) {
  register_messages();
  system_config system_settings;
  caf::actor_system system{system_settings};
  auto start = [&](const std::string& name) {
    fault_plan plan{.steps = 1'000'000'000, .checkpoint_by = -1};
    return data_parallel_trainer{
      counting_loop, plan,
      train_options{.scaling = {.num_workers = 2}, .run = config(name)}}
      .start(system);
  };
  auto handle = start("first");
  auto other = start("second");
  ASSERT_TRUE(handle && other);
  while (handle->status().reports < 3)
    std::this_thread::yield();
  *handle = std::move(*other);
  EXPECT_EQ(result::from_path(storage_ / "first").value().status,
            run_status_kind::aborted);
  while (handle->status().reports < 3)
    std::this_thread::yield();
  auto& same = *handle;
  *handle = std::move(same);
  EXPECT_EQ(handle->status().state, run_state::running);
  handle->stop();
  EXPECT_EQ(handle->wait().status, run_status_kind::aborted);
}

TEST_F(run_test, a_run_whose_driver_dies_returns_an_error_and_resumes) {
  register_messages();
  train_options options{.scaling = {.num_workers = 2}, .run = config()};
  {
    system_config system_settings;
    caf::actor_system system{system_settings};
    auto handle =
      data_parallel_trainer{counting_loop, fault_plan{.steps = 1'000'000'000},
                            options}
        .start(system);
    ASSERT_TRUE(handle) << handle.error().message;
    while (handle->status().reports < 3)
      std::this_thread::yield();
    caf::anon_send_exit(handle->driver(), caf::exit_reason::kill);
    auto outcome = handle->wait();
    EXPECT_EQ(outcome.status, run_status_kind::errored);
    ASSERT_TRUE(outcome.error);
    EXPECT_NE(outcome.error->message.find("the driver of the run died"),
              std::string::npos)
      << outcome.error->message;
  }
  auto next = run({.steps = 5}, options);
  EXPECT_EQ(next.status, run_status_kind::finished);
}

// The handle still exists: it returns status and result.
TEST_F(run_test, the_name_of_a_run_is_free_once_it_was_waited_for) {
  register_messages();
  system_config system_settings;
  caf::actor_system system{system_settings};
  for (auto where : {placement::processes, placement::in_process}) {
    auto name = where == placement::processes ? "processes" : "threads";
    train_options options{.scaling = {.num_workers = 2, .where = where},
                          .run = config(name)};
    auto handle =
      data_parallel_trainer{counting_loop, fault_plan{.steps = 1'000'000'000},
                            options}
        .start(system);
    ASSERT_TRUE(handle) << handle.error().message;
    while (handle->status().reports < 3)
      std::this_thread::yield();
    handle->stop();
    auto first = handle->wait();
    ASSERT_EQ(first.status, run_status_kind::aborted);
    ASSERT_TRUE(first.checkpoint);
    auto saved = bytes_of(first.checkpoint->path() / "step.txt");
    auto steps = std::stoi(saved);
    auto next = run({.steps = steps + 2}, options);
    EXPECT_EQ(next.status, run_status_kind::finished)
      << name << ": " << (next.error ? next.error->message : "");
    EXPECT_EQ(next.metrics.at("step"), metric_value{steps + 1});
    EXPECT_EQ(next.attempts, 2u);
    EXPECT_EQ(handle->status().state, run_state::aborted);
  }
}

TEST_F(run_test, two_runs_at_once_in_one_process_do_not_meet) {
  register_messages();
  system_config system_settings;
  caf::actor_system system{system_settings};
  std::vector<run_handle> handles;
  for (auto name : {"one", "two"}) {
    auto handle =
      data_parallel_trainer{
        counting_loop, fault_plan{.steps = 20},
        train_options{.scaling = {.num_workers = 2}, .run = config(name)}}
        .start(system);
    ASSERT_TRUE(handle) << handle.error().message;
    handles.push_back(std::move(*handle));
  }
  for (auto& handle : handles) {
    auto outcome = handle.wait();
    ASSERT_FALSE(outcome.error) << outcome.error->message;
    EXPECT_EQ(outcome.metrics.at("step"), metric_value{19});
  }
}

} // namespace troupe::test
