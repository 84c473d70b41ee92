// Runs that others made and that `run_id` names.

#include <string>
#include <utility>
#include <vector>

#include "tests/unit/callbacks/mlflow/mlflow_tree_fixture.hpp"
#include "troupe/callbacks/mlflow/mlflow_files.hpp"

namespace troupe::internal::test {
namespace {

/// A run named by `run_id`, with content of its own.
class given_mlflow_run_test : public mlflow_tree_test {
protected:
  void SetUp() override {
    mlflow_tree other{folder.path()}; // Creates the experiment.
    ASSERT_TRUE(other.open(wanted(), ""));
    place = run_folder().parent_path() / id;
    for (const auto* name : {"metrics", "tags"})
      fs::create_directories(place / name);
    write_bytes(place / "meta.yaml",
                "end_time: 9\nlifecycle_stage: active\nrun_name: theirs\n"
                "start_time: 7\nstatus: 3\nuser_id: someone\n");
    write_bytes(place / "metrics/old", "1 1 1\n");
    write_bytes(place / "metrics/x", "1 0.5 1\n");
    write_bytes(place / "tags/mlflow.runName", "theirs");
  }

  mlflow_run given(char uid) {
    auto result = wanted();
    result.uid = std::string(32, uid);
    result.run_id = id;
    result.tags.push_back({"mlflow.runName", "ours"});
    return result;
  }

  std::string metric(const std::string& key) {
    return bytes_of(place / "metrics" / key);
  }

  const std::string id = std::string(32, '9');
  fs::path place;
};

TEST_F(given_mlflow_run_test, keeps_what_is_there) {
  mlflow_tree tree{folder.path()};
  ASSERT_TRUE(tree.open(given('b'), ""));
  EXPECT_EQ(metric("old"), "1 1 1\n");
  EXPECT_EQ(metric("x"), "1 0.5 1\n");
  ASSERT_TRUE(log(tree, {{"x", 2, 2, 2}}));
  mlflow_tree again{folder.path()};
  ASSERT_TRUE(again.open(given('b'), tree.state()));
  EXPECT_EQ(metric("old"), "1 1 1\n");
  EXPECT_EQ(metric("x"), "1 0.5 1\n2 2 2\n");
  EXPECT_EQ(bytes_of(place / "tags/t"), "v");
  EXPECT_EQ(bytes_of(place / "tags/mlflow.runName"), "theirs");
}

TEST_F(given_mlflow_run_test, is_found_in_whichever_experiment_it_is) {
  auto run = given('b');
  run.experiment = "another";
  mlflow_tree tree{folder.path()};
  ASSERT_TRUE(tree.open(run, ""));
  ASSERT_TRUE(log(tree, {{"x", 2, 2, 2}}));
  EXPECT_EQ(metric("x"), "1 0.5 1\n2 2 2\n");
}

TEST_F(given_mlflow_run_test, changes_only_its_status_and_its_end) {
  mlflow_tree tree{folder.path()};
  ASSERT_TRUE(tree.open(given('b'), ""));
  auto meta = read_meta(place / "meta.yaml");
  EXPECT_EQ(meta["status"], "1");
  EXPECT_EQ(meta["end_time"], "null");
  ASSERT_TRUE(tree.end(run_status_kind::errored, 2000));
  meta = read_meta(place / "meta.yaml");
  EXPECT_EQ(meta["status"], "4");
  EXPECT_EQ(meta["end_time"], "2000");
  EXPECT_EQ(meta["run_name"], "theirs");
  EXPECT_EQ(meta["start_time"], "7");
  EXPECT_EQ(meta["user_id"], "someone");
  EXPECT_EQ(meta["lifecycle_stage"], "active");
}

TEST_F(given_mlflow_run_test, accepts_values_of_two_runs_at_once) {
  mlflow_tree one{folder.path()}, two{folder.path()};
  ASSERT_TRUE(one.open(given('b'), ""));
  ASSERT_TRUE(log(one, {{"x", 2, 2, 2}}));
  auto state = one.state();
  ASSERT_TRUE(log(one, {{"x", 3, 3, 3}}));
  ASSERT_TRUE(two.open(given('c'), ""));
  ASSERT_TRUE(log(two, {{"x", 4, 4, 4}}));
  mlflow_tree again{folder.path()};
  ASSERT_TRUE(again.open(given('b'), state));
  ASSERT_TRUE(log(again, {{"x", 3, 3, 3}, {"x", 5, 5, 5}}));
  ASSERT_TRUE(log(two, {{"x", 6, 6, 6}}));
  EXPECT_EQ(metric("x"), "1 0.5 1\n2 2 2\n3 3 3\n4 4 4\n5 5 5\n6 6 6\n");
}

TEST_F(given_mlflow_run_test, has_each_value_once_after_a_crash_at_any_byte) {
  const std::vector<mlflow_metric> first{{"x", 10, 10, 10}, {"x", 20, 20, 20}};
  const std::vector<mlflow_metric> second{{"x", 30, 30, 30}, {"x", 41, 41, 4}};
  mlflow_tree tree{folder.path()};
  ASSERT_TRUE(tree.open(given('b'), ""));
  auto fresh = tree.state();
  ASSERT_TRUE(tree.log_metrics(first));
  auto state = tree.state();
  auto confirmed = metric("x").size();
  ASSERT_TRUE(tree.log_metrics(second));
  auto x = metric("x");
  for (auto size = confirmed; size <= x.size(); ++size) {
    write_bytes(place / "metrics/x", x.substr(0, size));
    mlflow_tree again{folder.path()};
    ASSERT_TRUE(again.open(given('b'), state));
    ASSERT_TRUE(again.log_metrics(second));
    EXPECT_EQ(metric("x"), x);
  }
  mlflow_tree from_begin{folder.path()};
  ASSERT_TRUE(from_begin.open(given('b'), fresh));
  ASSERT_TRUE(from_begin.log_metrics(first));
  ASSERT_TRUE(from_begin.log_metrics(second));
  EXPECT_EQ(metric("x"), x);
}

TEST_F(given_mlflow_run_test, begins_a_line_behind_one_that_has_no_end) {
  write_bytes(place / "metrics/x", "1 0.5 1");
  mlflow_tree tree{folder.path()};
  ASSERT_TRUE(tree.open(given('b'), ""));
  ASSERT_TRUE(log(tree, {{"x", 2, 2, 2}}));
  EXPECT_EQ(metric("x"), "1 0.5 1\n2 2 2\n");
}

} // namespace
} // namespace troupe::internal::test
