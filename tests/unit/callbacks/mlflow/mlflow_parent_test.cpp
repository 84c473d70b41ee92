#include "troupe/callbacks/mlflow/mlflow_parent.hpp"

#include <algorithm>

#include <gtest/gtest.h>

#include "tests/support/environment_guard.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/callbacks/mlflow/mlflow_files.hpp"
#include "troupe/callbacks/mlflow/mlflow_settings.hpp"
#include "troupe/callbacks/mlflow/mlflow_tree.hpp"

namespace troupe::internal::test {

namespace {

constexpr const char* running = "1";
constexpr const char* finished = "3";
constexpr const char* killed = "5";

tracked_run trial() {
  tracked_run result;
  result.name = "trial-0001";
  result.path = "/runs/search/trial-0001";
  result.id = "0123456789abcdef0123456789abcdef";
  result.tags = {{"user", "me"}, {"program", "train"}};
  result.sweep = tracked_sweep{
    "search", "/runs/search", "fedcba9876543210fedcba9876543210", {}};
  return result;
}

bool has_tag(const mlflow_run& x, const std::string& key,
             const std::string& value) {
  return std::ranges::count(x.tags, mlflow_pair{key, value}) == 1;
}

class mlflow_parent_test : public testing::Test {
protected:
  std::unique_ptr<mlflow_parent> open() {
    auto run = describe_mlflow_parent({.experiment = "e"}, trial());
    auto result = mlflow_parent::open(
      std::make_unique<mlflow_tree>(folder_.path()), *run, {});
    EXPECT_TRUE(result);
    return result ? std::move(*result) : nullptr;
  }

  /// The number in its `meta.yaml`.
  std::string status() const {
    for (fs::recursive_directory_iterator i{folder_.path()}, end; i != end; ++i)
      if (i->path().filename() == "meta.yaml"
          && i->path().parent_path().filename() == trial().sweep->id)
        return read_meta(i->path())["status"];
    return "";
  }

  environment_guard guard_{{{"MLFLOW_TAGS", ""}, {"MLFLOW_RUN_ID", ""}}};
  temporary_folder folder_;
};

} // namespace

TEST_F(mlflow_parent_test, ends_with_the_last_trial_that_holds_it) {
  auto first = open();
  auto second = open();
  EXPECT_EQ(first->id(), trial().sweep->id);
  EXPECT_EQ(second->id(), first->id());
  ASSERT_TRUE(first->end(run_status_kind::finished, 1000));
  EXPECT_EQ(status(), running);
  ASSERT_TRUE(second->end(run_status_kind::errored, 2000));
  EXPECT_EQ(status(), finished) << "other trials may have finished";
  auto third = open();
  EXPECT_EQ(status(), running);
  ASSERT_TRUE(third->end(run_status_kind::aborted, 3000));
  EXPECT_EQ(status(), killed);
}

TEST_F(mlflow_parent_test, a_trial_that_is_given_up_holds_it_no_longer) {
  auto first = open();
  open().reset();
  ASSERT_TRUE(first->end(run_status_kind::finished, 1000));
  EXPECT_EQ(status(), finished);
}

TEST_F(mlflow_parent_test, waits_for_no_one_once_it_is_cancelled) {
  std::stop_source over;
  over.request_stop();
  auto run = describe_mlflow_parent({}, trial());
  auto result = mlflow_parent::open(
    std::make_unique<mlflow_tree>(folder_.path()), *run, over.get_token());
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().what, sink_failure::kind::transient);
}

TEST_F(mlflow_parent_test, is_described_by_the_sweep_and_the_options) {
  mlflow_options options{.experiment = "e", .tags = {{"team", "blue"}}};
  auto run = describe_mlflow_parent(options, trial());
  ASSERT_TRUE(run);
  EXPECT_EQ(run->experiment, "e");
  EXPECT_EQ(run->name, "search");
  EXPECT_EQ(run->user, "me");
  EXPECT_TRUE(has_tag(*run, "team", "blue"));
  EXPECT_TRUE(has_tag(*run, "mlflow.runName", "search"));
  EXPECT_TRUE(has_tag(*run, "troupe.run_uid", trial().sweep->id));
  EXPECT_EQ(mlflow_home(trial()), "/runs/search");
  // A run that is named is the parent, and not that of each trial.
  options.run_id = "mine";
  EXPECT_EQ(describe_mlflow_parent(options, trial())->run_id, "mine");
  EXPECT_EQ(describe_mlflow_run(options, trial()).run_id, "");
  // A parent of the user's own.
  options.tags["mlflow.parentRunId"] = "theirs";
  EXPECT_FALSE(describe_mlflow_parent(options, trial()));
  auto alone = trial();
  alone.sweep.reset();
  EXPECT_FALSE(describe_mlflow_parent({}, alone));
}

} // namespace troupe::internal::test
