// Runs that end because they have trained enough.

#include <stdexcept>
#include <thread>

#include <gmock/gmock.h>

#include <troupe/actors.hpp>

#include "tests/integration/run/run_test.hpp"
#include "tests/support/own_system.hpp"
#include "troupe/runtime/store/run_store.hpp"

namespace troupe::internal::test {

using testing::HasSubstr;

namespace {

/// What a loop that never ends by itself does.
struct endless {
  bool asks = false;   ///< Whether it asks `stop_requested()`.
  bool barrier = true; ///< Of its reports.
  int request_at = -1; ///< Step at which rank 1 wants to stop.

  TROUPE_FIELDS(asks, barrier, request_at)
};

void train(train_context& context, const endless& cfg) {
  for (int step = 0; !cfg.asks || !context.stop_requested(); ++step) {
    if (step == cfg.request_at && context.rank() == 1)
      context.request_stop("it is good enough");
    context.report({{"step", step}}, {.barrier = cfg.barrier});
  }
  context.report({{"step", -1}}); // after a stop that it has asked for
}

} // namespace

class stopped_run_test : public run_test {
protected:
  result train_until(stop_config stop, const endless& cfg = {}) {
    train_options options{.scaling = {.num_workers = 2}, .run = config()};
    options.run.stop = std::move(stop);
    return data_parallel_trainer{train, cfg, std::move(options)}.fit();
  }

  void expect_finished(const result& x, int last_step) {
    ASSERT_FALSE(x.error) << x.error->message;
    EXPECT_EQ(x.status, run_status_kind::finished);
    EXPECT_EQ(x.metrics.at("step").number(), last_step);
    EXPECT_EQ(result::from_path(run_path())->stop_reason, x.stop_reason);
  }
};

TEST_F(stopped_run_test, ends_a_loop_that_does_not_ask_at_its_next_report) {
  auto x = train_until({.reports = 4});
  expect_finished(x, 3);
  EXPECT_THAT(x.stop_reason, HasSubstr("run.stop.reports is 4"));
}

TEST_F(stopped_run_test, lets_a_loop_that_asks_report_on) {
  auto x = train_until({.metrics = {{"step", 2}}}, {.asks = true});
  expect_finished(x, -1);
  EXPECT_THAT(x.stop_reason, HasSubstr("step is 2, at least 2"));
  EXPECT_EQ(x.metrics_history()->size(), 4u);
}

TEST_F(stopped_run_test, ends_when_a_rank_wants_it) {
  auto x = train_until({}, {.request_at = 5});
  expect_finished(x, 5);
  EXPECT_EQ(x.stop_reason, "rank 1: it is good enough");
}

TEST_F(stopped_run_test, ends_ranks_that_do_not_wait_after_the_same_report) {
  auto x = train_until({.reports = 2}, {.barrier = false});
  ASSERT_FALSE(x.error) << x.error->message;
  EXPECT_EQ(x.status, run_status_kind::finished);
  EXPECT_LE(x.metrics_history()->size(), 20u);
}

TEST_F(stopped_run_test, ends_after_some_time) {
  auto x = train_until({.time = std::chrono::milliseconds{1}});
  ASSERT_FALSE(x.error) << x.error->message;
  EXPECT_THAT(x.stop_reason, HasSubstr("run.stop.time"));
}

TEST_F(stopped_run_test, is_finished_without_ranks_if_its_driver_died_then) {
  {
    auto dead = run_store::open(resolve(config())).value();
    auto attempt = dead->begin_attempt().value();
    report_batch batch{.values = {{{"step", 7}}, {{"step", 7}}},
                       .parts = {{}, {}},
                       .step_s = {0, 0}};
    ASSERT_TRUE(dead->append(attempt.attempt, batch, {}, 0));
    ASSERT_TRUE(dead->append_event("stop_decided", attempt.attempt,
                                   {{"reason", "it was good enough"}}));
  }
  auto x = train_until({});
  expect_finished(x, 7);
  EXPECT_EQ(x.stop_reason, "it was good enough");
  auto again = train_until({});
  ASSERT_TRUE(again.error);
  EXPECT_EQ(again.error->code, ec::conflict);
}

TEST_F(stopped_run_test, begins_again_if_its_last_report_failed) {
  auto save = [this](train_context& context) {
    while (!context.stop_requested())
      context.report({{"step", 0}});
    if (!fs::exists(storage_ / "disk is free"))
      throw std::runtime_error{"the disk is full"};
    context.report({{"step", -1}});
  };
  auto train_once = [&] {
    train_options options{.scaling = {.num_workers = 0}, .run = config()};
    options.run.stop.reports = 3;
    return data_parallel_trainer{in_process_loop{save}, std::move(options)}
      .fit();
  };
  auto failed = train_once();
  ASSERT_TRUE(failed.error);
  EXPECT_EQ(failed.status, run_status_kind::errored);
  write_bytes(storage_ / "disk is free", "");
  expect_finished(train_once(), -1);
}

TEST_F(stopped_run_test, is_not_finished_if_its_ranks_were_ended_before) {
  auto save = [](train_context& context) {
    while (!context.stop_requested())
      context.report({{"step", 0}});
    for (;;) // Something long.
      context.report({{"step", -1}});
  };
  own_system system;
  train_options options{
    .scaling = {.num_workers = 2, .where = placement::in_process},
    .run = config()};
  options.run.stop.reports = 3;
  auto run =
    data_parallel_trainer{in_process_loop{save}, std::move(options)}.start(
      system);
  ASSERT_TRUE(run) << run.error().message;
  while (run->status().reports < 6)
    std::this_thread::yield();
  run->preempt("now", std::chrono::milliseconds{1});
  EXPECT_EQ(run->wait().status, run_status_kind::preempted);
}

TEST_F(stopped_run_test, refuses_limits_that_mean_nothing) {
  auto x = train_until({.metrics = {{"step"}}});
  ASSERT_TRUE(x.error);
  EXPECT_EQ(x.error->code, ec::invalid_config);
}

} // namespace troupe::internal::test
