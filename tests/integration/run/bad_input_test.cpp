// Configurations that can never work: a clear error, and nothing is written.

#include <unistd.h>

#include <csignal>

#include "tests/integration/run/run_test.hpp"

namespace troupe::test {

namespace {

struct bad_input {
  std::string name;
  std::function<void(train_options&)> spoil;
  std::string says;
};

} // namespace

class bad_input_test : public run_test,
                       public ::testing::WithParamInterface<bad_input> {};

TEST_P(bad_input_test, is_refused_before_anything_starts) {
  train_options options{.scaling = {.num_workers = 2}, .run = config()};
  GetParam().spoil(options);
  auto outcome = run({}, options);
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.status, run_status_kind::errored);
  EXPECT_NE(outcome.error->message.find(GetParam().says), std::string::npos)
    << outcome.error->message;
  EXPECT_TRUE(fs::is_empty(storage_.path()));
}

TEST_F(run_test, a_config_too_large_for_a_message_is_refused_with_its_size) {
  fault_plan plan;
  plan.text = std::string(5 * 1024 * 1024, 'x');
  auto outcome = run(plan);
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ec::invalid_config);
  EXPECT_NE(outcome.error->message.find("the limit is 3145728"),
            std::string::npos)
    << outcome.error->message;
  EXPECT_TRUE(fs::is_empty(storage_.path()));
  // It travels nowhere if the loop runs here.
  EXPECT_FALSE(run(plan, 0).error);
}

TEST_F(run_test, a_relative_path_without_a_current_folder_is_an_error) {
  auto before = fs::current_path();
  auto gone = storage_ / "gone";
  fs::create_directories(gone);
  fs::current_path(gone);
  fs::remove(gone);
  for (int workers : {0, 2}) {
    train_options options{.scaling = {.num_workers = workers}, .run = config()};
    options.run.storage_path = "runs";
    auto outcome = run({}, options);
    EXPECT_EQ(outcome.status, run_status_kind::errored);
    ASSERT_TRUE(outcome.error);
    EXPECT_EQ(outcome.error->code, ec::invalid_config);
    EXPECT_NE(outcome.error->message.find("current folder cannot be found"),
              std::string::npos)
      << outcome.error->message;
  }
  fs::current_path(before);
}

INSTANTIATE_TEST_SUITE_P(
  inputs, bad_input_test,
  ::testing::Values(
    bad_input{"too_many_cpus",
              [](auto& x) { x.scaling.resources_per_worker.cpus = 4096; },
              "8192 cpus"},
    bad_input{"too_many_gpus",
              [](auto& x) { x.scaling.resources_per_worker.gpus = 64; },
              "128 gpus"},
    bad_input{"half_a_gpu",
              [](auto& x) { x.scaling.resources_per_worker.gpus = 0.5; },
              "do not share a GPU"},
    bad_input{"negative_cpus",
              [](auto& x) { x.scaling.resources_per_worker.cpus = -1; },
              "cpus must be"},
    bad_input{"negative_workers", [](auto& x) { x.scaling.num_workers = -1; },
              "num_workers"},
    bad_input{"empty_name", [](auto& x) { x.run.name = ""; }, "name is empty"},
    bad_input{"name_with_slash", [](auto& x) { x.run.name = "a/b"; }, "a/b"},
    bad_input{"dots", [](auto& x) { x.run.name = ".."; }, ".."},
    bad_input{"num_to_keep", [](auto& x) { x.run.checkpoint.num_to_keep = 0; },
              "num_to_keep"},
    bad_input{"max_failures", [](auto& x) { x.run.failure.max_failures = -2; },
              "max_failures"},
    bad_input{"queue", [](auto& x) { x.run.callback_queue = 0; },
              "callback_queue"},
    bad_input{
      "timeout",
      [](auto& x) { x.run.report_timeout = std::chrono::milliseconds{0}; },
      "report_timeout"},
    bad_input{"grace",
              [](auto& x) { x.run.stop_grace = std::chrono::milliseconds{-1}; },
              "stop_grace"},
    bad_input{"signal", [](auto& x) { x.run.preempt_signals = {SIGKILL}; },
              "preempt_signals has 9"},
    bad_input{
      "callback_limit",
      [](auto& x) { x.run.callback_limit = std::chrono::milliseconds{0}; },
      "callback_limit"},
    bad_input{
      "hang_timeout",
      [](auto& x) { x.run.hang_timeout = std::chrono::milliseconds{0}; },
      "hang_timeout"},
    bad_input{"null_callback",
              [](auto& x) { x.run.callbacks.push_back(nullptr); }, "null"}),
  [](auto& info) { return info.param.name; });

TEST_F(run_test, storage_that_is_a_file_is_named) {
  write_bytes(storage_ / "file", "x");
  train_options options{.scaling = {.num_workers = 2}, .run = config()};
  options.run.storage_path = storage_ / "file";
  auto outcome = run({}, options);
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ec::storage);
  EXPECT_NE(outcome.error->message.find((storage_ / "file").string()),
            std::string::npos)
    << outcome.error->message;
}

TEST_F(run_test, more_ranks_than_a_host_may_have_leave_no_folder) {
  auto outcome = run({}, 1025);
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ec::invalid_config);
  EXPECT_NE(outcome.error->message.find("at most 1024 ranks"),
            std::string::npos)
    << outcome.error->message;
  EXPECT_FALSE(fs::exists(run_path()));
}

} // namespace troupe::test
