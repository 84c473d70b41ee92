// What callbacks receive of a run, wherever its ranks are, and what they cause.

#include <algorithm>
#include <csignal>

#include <gmock/gmock.h>

#include "tests/integration/run/placement_test.hpp"
#include "tests/integration/run/report_hook.hpp"
#include "tests/integration/run/victim.hpp"
#include "tests/support/store_batch.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/store/callback_cursor.hpp"

namespace troupe::internal::test {

namespace {

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

} // namespace

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

TEST_P(placement_test, callbacks_are_not_called_for_a_start_that_cannot_begin) {
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

TEST_P(placement_test, a_callback_ends_the_run_and_keeps_files_of_its_own) {
  struct judge : user_callback {
    std::string name() const override { return "the judge/1"; }
    void after_report(const run_context& run, const std::vector<metrics>&,
                      const std::optional<checkpoint>&) override {
      write_bytes(run.folder(name()) / "seen",
                  std::to_string(run.report_index));
      if (run.report_index == 3)
        run.control.finish("the judge has seen enough");
    }
    void after_group_end(const run_context&, const error& reason) override {
      ended = reason.code == ec::none;
    }
    bool ended = false;
  };
  auto callback = std::make_shared<judge>();
  auto given = options();
  given.run.callbacks = {callback};
  auto outcome = run({.steps = 1'000'000'000, .checkpoint_by = -1}, given);
  EXPECT_EQ(outcome.status, run_status_kind::finished);
  EXPECT_EQ(outcome.stop_reason, "the judge has seen enough");
  EXPECT_TRUE(callback->ended);
  EXPECT_GE(std::stoi(bytes_of(run_path() / "callbacks/the_judge_1/seen")), 3);
}

TEST_P(placement_test, a_throwing_callback_is_logged_and_training_continues) {
  auto given = options();
  given.run.callbacks = {std::make_shared<throwing_callback>()};
  auto outcome = run({}, given);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_NE(bytes_of(run_path() / "journal.jsonl").find("the callback tripped"),
            std::string::npos);
}

TEST_P(placement_test, a_throwing_callback_ends_the_run_if_configured) {
  auto given = options();
  given.run.callbacks = {std::make_shared<throwing_callback>()};
  given.run.callback_errors = callback_errors::abort;
  auto outcome = run({.steps = 1'000'000, .checkpoint_by = -1}, given);
  ASSERT_TRUE(outcome.error) << to_string(outcome.status) << '\n'
                             << bytes_of(run_path() / "journal.jsonl");
  EXPECT_EQ(outcome.error->code, ec::callback_failed);
}

TEST_P(placement_test, N4_all_callbacks_receive_the_report_that_ends_the_run) {
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

TEST_P(placement_test, a_resumed_run_shows_the_number_of_its_next_attempt) {
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

TEST_P(placement_test, a_resumed_run_first_replays_pending_reports) {
  {
    auto dead = run_store::open(resolve(config())).value();
    auto attempt = dead->begin_attempt().value().attempt;
    ASSERT_TRUE(callback_cursor::open(*dead));
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

TEST_F(run_test, a_slow_callback_holds_reports_back_and_misses_none) {
  std::vector<metric_value> seen;
  auto batches = [this] {
    auto rows = result::from_path(run_path())->metrics_history();
    return rows ? rows->size() : 0;
  };
  std::uint64_t most_ahead = 0;
  constexpr std::uint64_t queue = 2; // Reports may run ahead by as many.
  constexpr std::uint64_t steps = 40;
  auto slow = [&](std::uint64_t number, const metrics& first) {
    seen.push_back(first.at("step"));
    // As slow as can be: until the ranks have come as far as they may.
    auto goal = std::min(steps, number + queue);
    wait_for(run_path(), [&] { return batches() >= goal; });
    most_ahead = std::max<std::uint64_t>(most_ahead, batches() - number);
  };
  train_options options{.scaling = {.num_workers = 2}, .run = config()};
  options.run.callback_queue = queue;
  options.run.callbacks = {std::make_shared<report_hook>(slow)};
  auto outcome = run({.steps = steps, .checkpoint_by = -1}, options);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  ASSERT_EQ(seen.size(), steps);
  for (std::size_t i = 0; i < steps; ++i)
    EXPECT_EQ(seen[i], metric_value{i});
  EXPECT_EQ(most_ahead, queue);
}

} // namespace troupe::internal::test
