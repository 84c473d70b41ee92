// The files that MLflow reads of a run, whatever failed while they were
// written.

#include <iterator>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "tests/support/folder_elsewhere.hpp"
#include "tests/unit/callbacks/mlflow/mlflow_tree_fixture.hpp"
#include "troupe/callbacks/mlflow/mlflow_files.hpp"
#include "troupe/runtime/failpoint.hpp"

namespace troupe::internal::test {
namespace {

TEST_F(mlflow_tree_test, writes_the_files_that_mlflow_writes) {
  mlflow_tree tree{folder.path()};
  ASSERT_TRUE(tree.open(wanted(), ""));
  ASSERT_TRUE(log(tree, {{"loss", 0.5, 1700, 3}, {"a/b", -1, 1701, 4}}));
  const std::vector<mlflow_pair> params{{"lr", "0.1"}};
  ASSERT_TRUE(tree.log_params(params));
  EXPECT_EQ(lines("loss"), "1700 0.5 3\n");
  EXPECT_EQ(lines("a/b"), "1701 -1 4\n");
  EXPECT_EQ(bytes_of(run_folder() / "params/lr"), "0.1");
  EXPECT_EQ(bytes_of(run_folder() / "tags/t"), "v");
  EXPECT_TRUE(fs::is_directory(run_folder() / "artifacts"));
  EXPECT_TRUE(fs::is_directory(folder / ".trash"));
  EXPECT_EQ(read_meta(folder / "0/meta.yaml")["name"], "Default");
}

// Two runs that start at once make an experiment both, and the trials of a
// sweep write to its run.
TEST_F(mlflow_tree_test, uses_no_temporary_file_of_another_process) {
  auto experiment = folder / "0/meta.yaml.new";
  fs::create_directory(folder / "0");
  write_bytes(experiment, "half of it");
  mlflow_tree tree{folder.path()};
  ASSERT_TRUE(tree.open(wanted(), ""));
  auto run = run_folder();
  write_bytes(run / "meta.yaml.new", "half of it");
  write_bytes(run / ".value.tmp", "half of it");
  ASSERT_TRUE(tree.log_params(std::vector<mlflow_pair>{{"a", "b"}}));
  ASSERT_TRUE(tree.end(run_status_kind::finished, 2000));
  for (auto& other : {experiment, run / "meta.yaml.new", run / ".value.tmp"})
    EXPECT_EQ(bytes_of(other), "half of it") << other;
  EXPECT_EQ(bytes_of(run / "params/a"), "b");
  EXPECT_EQ(read_meta(run / "meta.yaml")["status"], "3");
  EXPECT_EQ(
    std::distance(fs::directory_iterator{run}, fs::directory_iterator{}), 7)
    << "and none of its own is left";
}

TEST_F(mlflow_tree_test, removes_what_a_killed_process_left_of_its_own_run) {
  ASSERT_TRUE(mlflow_tree{folder.path()}.open(wanted(), ""));
  auto run = run_folder();
  const fs::path left[] = {run / ".value.123456", run / "meta.yaml.654321"};
  for (auto& file : left)
    write_bytes(file, "half of it");
  auto shared = wanted();
  shared.is_shared = true;
  ASSERT_TRUE(mlflow_tree{folder.path()}.open(shared, ""));
  for (auto& file : left)
    EXPECT_TRUE(fs::exists(file)) << file << " may be another process's";
  ASSERT_TRUE(mlflow_tree{folder.path()}.open(wanted(), ""));
  for (auto& file : left)
    EXPECT_FALSE(fs::exists(file)) << file;
  EXPECT_TRUE(fs::exists(run / "meta.yaml"));
}

TEST_F(mlflow_tree_test, does_not_wait_for_a_pipe_instead_of_a_meta_file) {
  ASSERT_EQ(::mkfifo((folder / "meta.yaml").c_str(), 0600), 0);
  EXPECT_TRUE(read_meta(folder / "meta.yaml").empty());
}

TEST_F(mlflow_tree_test, writes_status_and_end) {
  mlflow_tree tree{folder.path()};
  ASSERT_TRUE(tree.open(wanted(), ""));
  auto meta = read_meta(run_folder() / "meta.yaml");
  EXPECT_EQ(meta["status"], "1");
  EXPECT_EQ(meta["end_time"], "null");
  EXPECT_EQ(meta["start_time"], "1000");
  for (auto [status, number] : {std::pair{run_status_kind::finished, "3"},
                                std::pair{run_status_kind::errored, "4"},
                                std::pair{run_status_kind::aborted, "5"}}) {
    ASSERT_TRUE(tree.end(status, 2000));
    meta = read_meta(run_folder() / "meta.yaml");
    EXPECT_EQ(meta["status"], number);
    EXPECT_EQ(meta["end_time"], "2000");
  }
  mlflow_tree again{folder.path()};
  ASSERT_TRUE(again.open(wanted(), tree.state()));
  EXPECT_EQ(read_meta(run_folder() / "meta.yaml")["status"], "1");
}

TEST_F(mlflow_tree_test, writes_nothing_once_the_run_is_over) {
  std::stop_source over;
  mlflow_tree tree{folder.path(), over.get_token()};
  ASSERT_TRUE(tree.open(wanted(), ""));
  ASSERT_TRUE(log(tree, {{"loss", 0.5, 1700, 3}}));
  auto state = tree.state();
  over.request_stop();
  auto refused = [](const sink_result& x) {
    return !x && x.error().reason.code == ec::stopped;
  };
  EXPECT_TRUE(refused(log(tree, {{"loss", 0.25, 1800, 4}})));
  EXPECT_TRUE(refused(tree.log_params(std::vector<mlflow_pair>{{"a", "b"}})));
  EXPECT_TRUE(refused(tree.end(run_status_kind::finished, 2000)));
  EXPECT_TRUE(refused(
    mlflow_tree{folder.path(), over.get_token()}.open(wanted(), state)));
  EXPECT_EQ(lines("loss"), "1700 0.5 3\n");
  EXPECT_FALSE(fs::exists(run_folder() / "params/a"));
  EXPECT_EQ(read_meta(run_folder() / "meta.yaml")["end_time"], "null");
}

/// Whatever was written after the state was saved, and wherever the file ends:
/// what is delivered again is in the file once.
TEST_F(mlflow_tree_test, is_exact_after_a_crash_at_any_byte) {
  const std::vector<mlflow_metric> first{{"x", 1, 1, 1}, {"x", 2, 2, 2}};
  const std::vector<mlflow_metric> second{{"x", 3, 3, 3}, {"y", 4, 4, 4}};
  mlflow_tree tree{folder.path()};
  ASSERT_TRUE(tree.open(wanted(), ""));
  auto fresh = tree.state();
  ASSERT_TRUE(tree.log_metrics(first));
  auto state = tree.state();
  auto confirmed = lines("x").size();
  ASSERT_TRUE(tree.log_metrics(second));
  auto x = lines("x");
  auto y = lines("y");
  for (auto size = confirmed; size <= x.size(); ++size) {
    write_bytes(run_folder() / "metrics/x", x.substr(0, size));
    write_bytes(run_folder() / "metrics/y", y.substr(0, size - confirmed));
    mlflow_tree again{folder.path()};
    ASSERT_TRUE(again.open(wanted(), state));
    EXPECT_EQ(lines("x"), x.substr(0, confirmed));
    EXPECT_FALSE(fs::exists(run_folder() / "metrics/y"))
      << "an empty file makes the whole experiment unreadable";
    ASSERT_TRUE(again.log_metrics(second));
    EXPECT_EQ(lines("x"), x);
    EXPECT_EQ(lines("y"), y);
  }
  mlflow_tree from_begin{folder.path()};
  ASSERT_TRUE(from_begin.open(wanted(), fresh));
  EXPECT_FALSE(fs::exists(run_folder() / "metrics/x"));
}

TEST_F(mlflow_tree_test, cuts_a_torn_line_within_what_was_confirmed) {
  mlflow_tree tree{folder.path()};
  ASSERT_TRUE(tree.open(wanted(), ""));
  ASSERT_TRUE(log(tree, {{"x", 1, 1, 1}, {"x", 0.25, 2, 2}}));
  // The power failed before the disk had written everything.
  write_bytes(run_folder() / "metrics/x", "1 1 1\n2 0.2");
  mlflow_tree again{folder.path()};
  ASSERT_TRUE(again.open(wanted(), tree.state()));
  ASSERT_TRUE(log(again, {{"x", 3, 3, 3}}));
  EXPECT_EQ(lines("x"), "1 1 1\n3 3 3\n");
}

TEST_F(mlflow_tree_test, has_nothing_of_a_batch_that_failed_twice) {
  mlflow_tree tree{folder.path()};
  ASSERT_TRUE(tree.open(wanted(), ""));
  const std::vector<mlflow_metric> batch{{"a", 1, 1, 1}, {"b", 1, 1, 1}};
  fs::create_directory_symlink("/proc/none", run_folder() / "metrics/b");
  ASSERT_FALSE(tree.log_metrics(batch));
  ASSERT_FALSE(tree.log_metrics(batch));
  fs::remove(run_folder() / "metrics/b");
  ASSERT_TRUE(tree.log_metrics(batch));
  EXPECT_EQ(lines("a"), "1 1 1\n");
  EXPECT_EQ(lines("b"), "1 1 1\n");
}

TEST_F(mlflow_tree_test, gives_a_file_and_a_folder_of_one_name_two) {
  mlflow_tree tree{folder.path()};
  ASSERT_TRUE(tree.open(wanted(), ""));
  ASSERT_TRUE(log(tree, {{"a", 1, 1, 1}, {"b/c", 1, 1, 1}}));
  ASSERT_TRUE(log(tree, {{"a/x", 2, 2, 2}, {"b", 2, 2, 2}}));
  std::vector<std::string> names;
  for (const auto& x : fs::directory_iterator{run_folder() / "metrics"})
    names.push_back(x.path().filename().string());
  EXPECT_THAT(names, testing::UnorderedElementsAre(
                       "a", testing::MatchesRegex("a_x_[0-9a-f]{8}"), "b",
                       testing::MatchesRegex("b_[0-9a-f]{8}")));
  EXPECT_EQ(lines("b/c"), "1 1 1\n");
}

TEST_F(mlflow_tree_test, knows_the_params_of_an_earlier_process) {
  mlflow_tree tree{folder.path()};
  ASSERT_TRUE(tree.open(wanted(), ""));
  const std::vector<mlflow_pair> params{{"o/lr", "1"}, {"n", ""}};
  ASSERT_TRUE(tree.log_params(params));
  mlflow_tree again{folder.path()};
  ASSERT_TRUE(again.open(wanted(), tree.state()));
  EXPECT_THAT(again.params(), testing::ElementsAre(testing::Pair("n", ""),
                                                   testing::Pair("o/lr", "1")));
}

TEST_F(mlflow_tree_test, uses_experiments_that_mlflow_created) {
  fs::create_directories(folder / "77");
  write_bytes(folder / "77/meta.yaml",
              "artifact_location: file:///x\nexperiment_id: '77'\n"
              "lifecycle_stage: active\nname: 'it''s'\n");
  auto run = wanted();
  run.experiment = "it's";
  mlflow_tree by_name{folder.path()};
  ASSERT_TRUE(by_name.open(run, ""));
  EXPECT_TRUE(fs::exists(folder / "77" / run.uid));
  run.experiment_id = "78";
  mlflow_tree by_id{folder.path()};
  auto failed = by_id.open(run, "");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().what, sink_failure::kind::permanent);
  run.experiment_id = "77";
  EXPECT_TRUE(by_id.open(run, ""));
  write_bytes(folder / "77/meta.yaml",
              "experiment_id: '77'\nlifecycle_stage: deleted\nname: x\n");
  failed = by_id.open(run, "");
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().reason.message, testing::HasSubstr("deleted"));
}

/// The position in the journal is saved durably, so what precedes it must be,
/// too.
TEST_F(mlflow_tree_test, confirms_only_what_survives_a_power_cut) {
  const std::vector<mlflow_metric> batch{{"a", 1, 1, 1}, {"b/c", 1, 1, 1}};
  const std::vector<mlflow_pair> pairs{{"p", "1"}};
  write_bytes(folder / "artifact", "bytes");
  mlflow_tree tree{folder.path()};
  ASSERT_TRUE(tree.open(wanted(), ""));
  auto is_waiting = [&](const auto& write) {
    EXPECT_TRUE(arm_failpoint("storage.sync_file:1+=eio"));
    auto result = write();
    EXPECT_TRUE(arm_failpoint(""));
    return !result && result.error().what == sink_failure::kind::transient
           && result.error().accepted == 0 && write();
  };
  EXPECT_TRUE(is_waiting([&] { return tree.log_metrics(batch); }));
  EXPECT_TRUE(is_waiting([&] { return tree.log_params(pairs); }));
  EXPECT_TRUE(is_waiting([&] { return tree.set_tags(pairs); }));
  EXPECT_TRUE(is_waiting(
    [&] { return tree.put_file(folder / "artifact", "sub/artifact"); }));
  EXPECT_EQ(lines("a"), "1 1 1\n");
  EXPECT_EQ(lines("b/c"), "1 1 1\n");
  // Renamed files are durable only once their folder is synced.
  for (const auto* pass : {"1", "2", "3"}) {
    EXPECT_TRUE(
      arm_failpoint("storage.sync_file:" + std::string{pass} + "=eio"));
    EXPECT_EQ(bool{tree.set_tags(pairs)}, *pass == '3') << pass;
  }
  EXPECT_TRUE(arm_failpoint(""));
}

TEST_F(mlflow_tree_test, copies_files_of_another_file_system) {
  folder_elsewhere elsewhere;
  write_bytes(elsewhere / "a", "bytes");
  mlflow_tree tree{folder.path()};
  ASSERT_TRUE(tree.open(wanted(), ""));
  auto ok = tree.put_file(elsewhere / "a", "sub/a");
  ASSERT_TRUE(ok) << ok.error().reason.message;
  EXPECT_EQ(bytes_of(run_folder() / "artifacts/sub/a"), "bytes");
}

TEST_F(mlflow_tree_test, rejects_only_files_that_can_never_be_copied) {
  write_bytes(folder / "a", "bytes");
  mlflow_tree tree{folder.path()};
  ASSERT_TRUE(tree.open(wanted(), ""));
  const std::string long_name(300, 'x');
  for (auto& name : {long_name, long_name + "/a", "b/" + long_name + "/a"}) {
    auto result = tree.put_file(folder / "a", name);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().what, sink_failure::kind::rejected) << name;
  }
  auto gone = tree.put_file(folder / "gone", "c");
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().what, sink_failure::kind::rejected);
  EXPECT_TRUE(tree.put_file(folder / "a", "a"));
}

TEST_F(mlflow_tree_test, waits_where_nothing_can_be_written) {
  mlflow_tree tree{"/proc/none"};
  auto failed = tree.open(wanted(), "");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().what, sink_failure::kind::transient);
}

} // namespace
} // namespace troupe::internal::test
