// Configurations that can never work: a clear error, and nothing is written.

#include <unistd.h>

#include <csignal>

#include <troupe/trackers.hpp>

#include "tests/integration/run/run_test.hpp"

namespace troupe::internal::test {

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
  options.run.quiet = false;
  testing::internal::CaptureStderr();
  auto outcome = run({}, options);
  auto said = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(said, "troupe: " + outcome.error->message + '\n');
  EXPECT_EQ(outcome.status, run_status_kind::errored);
  EXPECT_NE(outcome.error->message.find(GetParam().says), std::string::npos)
    << outcome.error->message;
  EXPECT_TRUE(fs::is_empty(storage_.path()));
}

TEST_F(run_test, a_config_too_large_for_a_message_is_refused_with_its_size) {
  fault_plan plan;
  plan.text = std::string(3 * 1024 * 1024, 'x');
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

/// Throws when it is written, behind its first value.
struct moody_config {
  int steps = 0;

  template <class Archive>
  void serialize(Archive& ar) {
    ar(cereal::make_nvp("steps", steps));
    throw std::runtime_error{"the steps are a secret"};
  }
};

TEST_F(run_test, a_config_that_cannot_be_serialized_is_an_error_of_fit) {
  auto loop = [](train_context&, const moody_config&) {};
  for (int workers : {0, 2})
    for (bool closure : {false, true}) {
      train_options options{
        .scaling = {.num_workers = workers, .where = placement::in_process},
        .run = config()};
      auto trainer = closure
                       ? data_parallel_trainer{in_process_loop{loop},
                                               moody_config{}, options}
                       : data_parallel_trainer{loop, moody_config{}, options};
      auto outcome = trainer.fit();
      ASSERT_TRUE(outcome.error);
      EXPECT_EQ(outcome.error->code, ec::invalid_config);
      EXPECT_EQ(outcome.error->message,
                "the config of the train loop cannot be serialized: the steps "
                "are a secret");
    }
  EXPECT_TRUE(fs::is_empty(storage_.path()));
}

/// Reports what `fit()` says within it.
void fit_in_a_loop(train_context& context) {
  auto fit = [&](const train_options& options) {
    return data_parallel_trainer{[](train_context&) {}, options}.fit();
  };
  train_options options{.scaling = {.num_workers = 2}};
  options.run.storage_path = context.run_path() / "inner";
  options.run.quiet = true;
  auto refused = fit(options);
  options.scaling.where = placement::in_process;
  auto inner = fit(options);
  context.report({{"code", std::string{to_string(refused.error->code)}},
                  {"says", refused.error->message},
                  {"inner", inner.status == run_status_kind::finished}});
}

TEST_F(run_test, fit_in_the_loop_of_a_process_says_what_is_wrong) {
  auto outcome =
    data_parallel_trainer{
      fit_in_a_loop,
      train_options{.scaling = {.num_workers = 1}, .run = config()}}
      .fit();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.metrics.at("code"), metric_value{"invalid argument"});
  auto says = to_string(outcome.metrics.at("says"));
  EXPECT_EQ(says.find("a train loop in a rank's process cannot start ranks"),
            0u)
    << says;
  EXPECT_EQ(says.find("troupe::init"), says.npos) << says;
  EXPECT_EQ(outcome.metrics.at("inner"), metric_value{true});
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
    bad_input{"no_variable",
              [](auto& x) {
                x.run.worker_env = {{"A=B", "c"}};
              },
              "worker_env has 'A=B'"},
    bad_input{"no_name_of_a_variable",
              [](auto& x) {
                x.run.worker_env = {{"", "c"}};
              },
              "worker_env"},
    bad_input{"negative_cpus",
              [](auto& x) { x.scaling.resources_per_worker.cpus = -1; },
              "cpus must be"},
    bad_input{"negative_workers", [](auto& x) { x.scaling.num_workers = -1; },
              "num_workers"},
    bad_input{"home_of_a_user",
              [](auto& x) { x.run.storage_path = "~nosuchuser/x"; },
              "run.storage_path is '~nosuchuser/x'"},
    bad_input{"too_many_workers", [](auto& x) { x.scaling.num_workers = 1025; },
              "at most 1024 ranks"},
    bad_input{"no_storage", [](auto& x) { x.run.storage_path = ""; },
              "run.storage_path is empty"},
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
      "run.report_timeout must be > 0 or unset, got 0 ms"},
    bad_input{"grace",
              [](auto& x) { x.run.stop_grace = std::chrono::milliseconds{-1}; },
              "run.stop_grace must be >= 0, got -1 ms"},
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
              [](auto& x) { x.run.callbacks.push_back(nullptr); },
              "run.callbacks has a null"},
    bad_input{"null_tracker",
              [](auto& x) { x.run.trackers.push_back(nullptr); },
              "run.trackers has a null"},
    bad_input{"setting_of_a_tracker",
              [](auto& x) {
                x.run.trackers.push_back(
                  mlflow_tracker({.tracking_uri = "localhost:5000"}));
              },
              "tracker mlflow: "},
    bad_input{"two_trackers_of_one_name",
              [](auto& x) {
                x.run.trackers = {csv_tracker(), csv_tracker()};
              },
              "two trackers named csv"}),
  [](auto& info) { return info.param.name; });

TEST_F(run_test, a_variable_that_is_wrong_or_misspelled_is_named_once) {
  train_options options{.scaling = {.num_workers = 2}, .run = config()};
  options.run.quiet = false;
  for (auto name : {"TROUPE_SENDER_GRACE", "TROUPE_SENDERGRACE"}) {
    ::setenv(name, "abc", 1);
    testing::internal::CaptureStderr();
    auto outcome = run({}, options);
    auto said = testing::internal::GetCapturedStderr();
    ::unsetenv(name);
    auto at = said.find(name);
    EXPECT_NE(at, said.npos) << said;
    EXPECT_EQ(said.find(name, at + 1), said.npos) << said;
  }
}

TEST_F(run_test, a_failure_is_printed_once) {
  train_options options{.scaling = {.num_workers = 2}, .run = config()};
  options.run.quiet = false;
  testing::internal::CaptureStderr();
  auto outcome = run({.action = "throw", .rank = 1, .step = 1}, options);
  auto said = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(outcome.error);
  auto at = said.find(outcome.error->message);
  EXPECT_NE(at, said.npos) << said;
  EXPECT_EQ(said.find("the loss is a banana", said.find("banana") + 1),
            said.npos)
    << said;
}

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

} // namespace troupe::internal::test
